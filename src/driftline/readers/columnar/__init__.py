"""Formats of declared columns: Parquet and ORC, and rows of any such format."""
