"""The operations on a table besides ingesting into it, a file each."""
