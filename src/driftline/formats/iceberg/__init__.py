"""Iceberg tables through the catalog of a Spark session.

A batch is one Iceberg transaction: the schema update, the files that Spark wrote, and the batch's token
become visible together, in one metadata version, or not at all. Spark writes straight into the transaction's
table, as it does for CREATE TABLE AS SELECT; so a new table, too, appears with its first rows.
"""
