"""CSV files: dialects, headers, records, and the types of columns."""
