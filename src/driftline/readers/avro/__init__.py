"""Avro: files, and the binary values of messages."""
