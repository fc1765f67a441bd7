"""Sources of records. Each source observes its records, and converts them to columns of the table."""
