"""Observes records: every type at every path, merged into a shape."""
