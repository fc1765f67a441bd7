"""JSON: lines, documents and texts."""
