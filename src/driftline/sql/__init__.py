"""Spark SQL for reading tables: values as other types, columns folded into one, the losses of that."""
