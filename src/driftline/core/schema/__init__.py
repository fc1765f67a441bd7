"""What a table is: types, names, partitioning, and their text and JSON."""
