"""Columnar formats: Parquet, ORC, and rows of declared types from any source."""
