"""Table definitions: types, names, partitioning, and their text and JSON forms."""
