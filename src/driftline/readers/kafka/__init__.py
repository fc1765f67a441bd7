"""Kafka messages: values and keys by the schemas of a registry."""
