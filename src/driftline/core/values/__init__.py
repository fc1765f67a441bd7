"""What single values are: numbers, dates, JSON."""
