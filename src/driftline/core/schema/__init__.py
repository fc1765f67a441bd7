"""Definitions of tables: types, names, partitioning, and their text and JSON forms."""
