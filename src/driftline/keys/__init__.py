"""Rows by key: which row a change is about, which change counts, and where the table has the row.

Arrow alone: no table format, no Spark.
"""
