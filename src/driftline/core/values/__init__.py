"""Single values: numbers, dates, JSON."""
