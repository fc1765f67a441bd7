"""Rows by key: the row that a change targets, the change that wins, and the row's place in the table.

Arrow alone: no table format, no Spark.
"""
