"""Spark SQL for what reads tables: values as other types, columns
folded into one, what would be lost by it.
"""
