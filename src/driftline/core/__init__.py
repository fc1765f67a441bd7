"""The rules, free of any engine: types, shapes, naming, plans. No import of Spark, Iceberg or DuckDB."""
