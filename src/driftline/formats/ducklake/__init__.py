"""DuckLake tables: Spark reads and writes the files, DuckDB the catalog.

A batch is one DuckLake snapshot: executors write Parquet files with field ids, unseen; then
the schema, the files with their statistics, the quarantine and the batch's token enter the
catalog in one transaction of its database.
"""
