"""Spark SQL for reading tables: casts, folded columns, and values that folding would lose."""
