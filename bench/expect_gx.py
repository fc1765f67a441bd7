"""Great Expectations over the events, in an environment of its own: a validation for each line of standard input.

    bench/.expect/bin/python bench/expect_gx.py FOLDER SCHEMA CORES

It counts the values that are not as expected, and writes no table: that would be a further read.
"""

from __future__ import annotations

import logging
import os
import sys

import great_expectations as gx
from great_expectations import expectations as gxe
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

CHECKS = [
    gxe.ExpectColumnValuesToNotBeNull(column="country"),
    gxe.ExpectColumnValuesToMatchRegex(column="note", regex="^x"),
    gxe.ExpectColumnValuesToBeBetween(column="price", min_value=0),
    gxe.ExpectColumnValuesToBeBetween(column="quantity", min_value=0, max_value=10),
    gxe.ExpectColumnValuesToBeInSet(column="status", value_set=["paid", "open"]),
]


def main() -> None:
    folder, schema, cores = sys.argv[1:]
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is for the log
    logging.disable(logging.INFO)
    spark = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false").getOrCreate()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_spark("spark").add_dataframe_asset("events")
    batch = asset.add_batch_definition_whole_dataframe("all")
    suite = context.suites.add(gx.ExpectationSuite("five", expectations=CHECKS))
    validation = context.validation_definitions.add(
        gx.ValidationDefinition(name="five", data=batch, suite=suite)
    )
    print("ready", file=told)
    for _ in sys.stdin:
        # Expectations take names of columns, and no paths.
        events = spark.read.schema(schema).json(folder).withColumn("country", F.col("customer.country"))
        found = validation.run(batch_parameters={"dataframe": events}, result_format="BASIC")
        print(sum(one.result["unexpected_count"] for one in found.results), file=told)


if __name__ == "__main__":
    main()
