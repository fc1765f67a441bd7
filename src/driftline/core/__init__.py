"""Pure rules: types, shapes, naming, plans. Imports no Spark, Iceberg or DuckDB."""
