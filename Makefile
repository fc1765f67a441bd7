# Needs python3 (3.11 or newer; PYTHON=... names another) and nothing else: no Java, no jars.
PYTHON ?= python3
PY := .venv/bin/python
INSTALLED := .venv/installed
BENCH := bench/.venv/installed
DUCKDB := bench/.duckdb/installed
READERS := bench/.readers/installed
CATALOGS := bench/.catalogs/installed
EXPECT := bench/.expect/installed
LOCK := .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock"

# Where it is set, each start of Python compiles its libraries again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help demo clean lock
.PHONY: quick quick-tests ready test test-all test-cluster test-spark lint check fuzz faults house
.PHONY: docs docs-serve docs-sessions docs-pictures
.PHONY: kafka rest s3 lakehouse cluster
.PHONY: catalogs readers sparks test-sparks test-oldest test-image newer postgres-cdc mariadb-cdc record-changes
.PHONY: bench bench-verify bench-guard bench-stream bench-watched bench-captures bench-pages bench-replan bench-replanned bench-kafka bench-sources bench-typed bench-csv bench-maps bench-upsert bench-cdc bench-growth bench-history bench-startup bench-upkeep bench-many bench-compact bench-expect bench-install bench-scale
.PHONY: wheel licenses

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## drifting batches into a fresh lake: what changed, why, and a query over it
	@.venv/bin/driftline demo

# Types are checked by one process: beside it the other core runs tests.
quick: $(INSTALLED) ## style, types, the core and the conversion: about a minute
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint quick-tests

quick-tests: $(INSTALLED)
	@$(PY) -m pytest tests/core src/driftline -q -m "not slow" -n 2 --dist loadfile $(ARGS)

# Processes with a Spark session each, one more than cores, as tests wait for others. Those of one file stay together, as
# they share what they set up.
SUITE := $(PY) -m pytest --ignore=tests/cluster --ignore=tests/databases -n 3 --dist loadfile --no-loadscope-reorder
test: $(INSTALLED) ready ## what a change must pass, on this machine's own Spark (ARGS="-n 0 tests/lake/test_csv.py" for some, in one process)
	@$(SUITE) -m "not nightly" $(ARGS)

# A failure is told by the tests that need what is missing.
ready: $(INSTALLED)
	-@PYTHONPATH=tests $(PY) -m servers.ready

test-all: $(INSTALLED) ready ## these, the nightly ones, and those on a real cluster, in a process of their own
	@$(SUITE) $(ARGS)
	@$(MAKE) --no-print-directory test-cluster

test-cluster: $(INSTALLED)
	@$(PY) -m pytest tests/cluster

postgres-cdc mariadb-cdc: $(INSTALLED)
	@$(PY) -m pytest tests/databases/test_$(@:-cdc=).py -n 0 $(ARGS)

postgres-cdc: ## changes of a PostgreSQL by Debezium's engine: needs PostgreSQL and a JDK
mariadb-cdc: ## the same of a MariaDB: needs its server, its client and a JDK
record-changes: $(INSTALLED) ## what Debezium's engine sends of both, into tests/recorded: needs both
	@PYTHONPATH=tests $(PY) -m databases.record

# An environment with that Spark alone, in front of the libraries of .venv.
SPARK ?= 3.5.8
OTHER := .venv/spark-$(SPARK)
test-spark: $(OTHER)/installed $(if $(WHEEL),$(OTHER)/wheel) ## tests of lakes on another Spark (SPARK=4.0.1; WHEEL=1 ARGS="--in-catalog hive tests/lake")
	@$(if $(WHEEL),PYTHONPATH=$(CURDIR)/$(OTHER)/wheel) $(OTHER)/bin/python -m pytest -W "ignore:distutils Version classes:DeprecationWarning" $(or $(ARGS),tests/lake)

# In front of the checkout's sources.
$(OTHER)/wheel: wheel $(OTHER)/installed
	@rm -rf $@
	@$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ dist/*.whl

# What most people do, and what depends on versions of libraries: a tenth of the tests of lakes.
TENTH := tests/core/test_connect.py $(addprefix tests/lake/test_,iceberg.py keyed.py variant.py unread.py branches.py verify_spark.py row_ids.py)

# What goes through each difference that runtime/spark_version.py knows, a minute or two on each Spark: the slowest of
# the tests that would do are left out.
SPARKS := $(patsubst requirements/spark-%.txt,%,$(wildcard requirements/spark-*.txt))
DIFFERENT := tests/core/test_connect.py \
	$(addprefix tests/lake/test_,iceberg.py variant.py unread.py row_ids.py branches.py ducklake_read.py) \
	--deselect tests/lake/test_ducklake_read.py::test_every_alter \
	tests/lake/test_ducklake_foreign.py::test_columns_that_spark_cannot_read_stand_in_nobodys_way \
	tests/lake/test_keyed.py::test_a_table_is_what_a_dictionary_says \
	$(addprefix tests/lake/test_verify_spark.py::test_,typed_files csv)
sparks: $(SPARKS:%=.venv/spark-%/installed)
test-sparks: sparks ## what differs between Sparks, on each other one (ARGS="tests/lake/test_csv.py" for others)
	@$(MAKE) --no-print-directory --jobs=$(words $(SPARKS)) --output-sync=target $(SPARKS:%=test-spark-%)
$(SPARKS:%=test-spark-%): test-spark-%:
	@$(MAKE) --no-print-directory test-spark SPARK=$* ARGS="$(or $(ARGS),$(DIFFERENT))"

# The same with the oldest version of each dependency that pyproject.toml allows in front.
test-oldest: .venv/oldest/installed ## the core, and some tests of lakes, on the oldest dependencies (ARGS="tests/lake/test_csv.py" for some)
	@.venv/oldest/bin/python -m pytest -m "not slow" $(or $(ARGS),tests/core $(TENTH))

# What the image has: the same environment, without what it leaves out.
IMAGE := tests/system/test_deploy.py tests/system/test_kafka_cli.py tests/system/test_rest.py tests/lake/test_ducklake_read.py
test-image: .venv/image/installed ## the same tests of lakes, and stores, catalogs, Kafka and DuckLakes, on the libraries of the image
	@.venv/image/bin/python -m pytest $(or $(ARGS),$(TENTH) $(IMAGE))

newer: $(INSTALLED) ## the newest Spark and Iceberg on the package indexes, next to the pinned ones; changes nothing
	@$(PY) bench/newer.py

fuzz: $(INSTALLED) ## the core's properties over other random data each time (ARGS="tests/lake/test_border_walk.py" for more walks)
	@DRIFTLINE_FUZZ=1 $(PY) -m pytest $(or $(ARGS),tests/core)

faults: $(INSTALLED) ## each command that writes, struck at each of its file operations: hours (ARGS="--every 20" for some)
	@PYTHONPATH=tests $(PY) -m faults $(ARGS)

lint: $(INSTALLED) ## style and types
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

house: $(INSTALLED) ## the shape of the code in figures, next to the goals (ARGS=-v for each place)
	@PYTHONPATH=tests $(PY) -m house $(ARGS)

# Lint takes one core: beside it the other makes what tests need. Tests of one process each run beside each other, and
# nothing beside the guard, which measures. What waits longest comes last: UNTIL is the time, in seconds since 1970, from
# which no nightly test begins.
check: $(INSTALLED) ## lint, then all tests, those on other Sparks, and the guard of speed: CI runs this
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint ready
	@$(SUITE) -m "not nightly"
	@$(MAKE) --no-print-directory sparks
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-cluster $(SPARKS:%=test-spark-%)
	@$(MAKE) --no-print-directory bench-guard
	@$(SUITE) -m nightly $(if $(UNTIL),--until $(UNTIL))

docs: $(INSTALLED) ## the site of the docs, into build/site
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build

docs-serve: $(INSTALLED) ## the same on 127.0.0.1:8000, built anew with each change
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs serve

docs-pictures: $(INSTALLED) ## take the pictures of the docs anew, by the tests that play a browser
	@DRIFTLINE_PICTURES=docs/images $(PY) -m pytest -q -n 0 tests/system/test_page.py tests/system/test_ui_cli.py -k "pictures or settles"

docs-sessions: $(INSTALLED) ## run the sessions in the docs, and write what they print now
	@PYTHONPATH=tests $(PY) -m system.docs_session

kafka rest s3 lakehouse cluster: $(INSTALLED)
	@PYTHONPATH=tests $(PY) -m servers $@

kafka: ## a Kafka broker on this machine, until Ctrl-C
rest: ## an Iceberg REST catalog on this machine
s3: ## an S3 server on this machine, built by Go the first time
lakehouse: ## that, and a REST catalog whose tables are in it
cluster: ## a Spark cluster on this machine: a master and two workers

bench: $(INSTALLED) $(BENCH) $(DUCKDB) ## speed, memory and what is lost, next to others (ARGS=--quick for a try; BENCH_WEBHOOKS=FILE)
	@bench/.venv/bin/python bench/run.py $(ARGS)

bench-verify: $(INSTALLED) ## what verify takes next to the ingest that it proves (ARGS="--records 200000")
	@$(PY) bench/verify.py $(ARGS)

bench-guard: $(INSTALLED) ## the CPU of a small ingest and its check, in turns with the last release: fails at 15 % more (ARGS="--against COMMIT")
	@$(PY) bench/guard.py $(ARGS)

bench-stream: $(INSTALLED) ## what a micro-batch of a capture costs, next to plain Spark (ARGS="--batches 10" for a try)
	@$(PY) bench/stream.py $(ARGS)

bench-pages: $(INSTALLED) ## the pages of `driftline ui` for thousands of tables, and of columns (ARGS="--tables 100")
	@$(PY) bench/pages.py $(ARGS)

bench-replan: $(INSTALLED) ## a replan, next to reading the rows (ARGS="--rows 200000")
	@$(PY) bench/replan.py $(ARGS)

bench-replanned: $(INSTALLED) ## drifting micro-batches, replanned while they come, verified and taken back (ARGS="--batches 60")
	@$(PY) bench/replanned.py $(ARGS)

bench-watched: $(INSTALLED) ## what metrics and lineage cost a micro-batch, with them and without in turns (ARGS="--batches 30")
	@$(PY) bench/watched.py $(ARGS)

bench-captures: $(INSTALLED) ## two captures at once in one process, next to one alone, in turns (ARGS="--captures 4")
	@$(PY) bench/captures.py $(ARGS)

bench-kafka: $(INSTALLED) ## topics of JSON, and of Avro behind a registry, next to plain Spark (ARGS="--records 200000")
	@PYTHONPATH=tests $(PY) bench/kafka.py $(ARGS)

bench-sources: $(INSTALLED) ## packed files in a bucket, pandas and Polars, next to plain Spark (ARGS="--records 200000")
	@PYTHONPATH=tests $(PY) bench/sources.py $(ARGS)

bench-typed: $(INSTALLED) ## Parquet and CSV, next to Spark's own read and append (ARGS="--only parquet")
	@$(PY) bench/typed.py $(ARGS)

bench-csv: $(INSTALLED) ## types of the CSV files below a folder, next to those that DuckDB finds (FOLDER=... ARGS=--list for each difference)
	@$(PY) bench/csv_types.py $(FOLDER) $(ARGS)

bench-maps: $(INSTALLED) ## objects under random keys, next to the same under fixed ones (ARGS="--records 100000")
	@$(PY) bench/maps.py $(ARGS)

bench-upsert: $(INSTALLED) ## changes by key into a million rows, next to MERGE of Spark and DuckDB, and pyiceberg (ARGS="--rows 100000 --batches 1000")
	@$(PY) bench/upsert.py $(ARGS)

bench-cdc: $(INSTALLED) ## Debezium's messages into a table with a key, next to a plain append of the same (ARGS="--messages 20000 --rounds 1")
	@$(PY) bench/cdc.py $(ARGS)

bench-upkeep: $(INSTALLED) ## what upkeep leaves of a table's metadata, and how long it takes, next to Iceberg's expire_snapshots
	@$(PY) bench/upkeep.py $(ARGS)

bench-many: $(INSTALLED) ## webhooks into 58 tables next to one, small batches into 60 next to bare commits (ARGS="--size 1e9 --rounds 1")
	@$(PY) bench/many.py $(ARGS)

bench-compact: $(INSTALLED) ## a capture that compacts behind its batches next to one that does not, and a compaction next to Spark's (ARGS="--batches 100")
	@$(PY) bench/compact.py $(ARGS)

bench-expect: $(INSTALLED) $(EXPECT) ## five expectations of a million events, with them and without in turns, next to Spark's SQL and Great Expectations (ARGS="--records 200000")
	@$(PY) bench/expect.py --with bench/.expect/bin/python $(ARGS)

bench-startup: $(INSTALLED) $(BENCH) ## commands from the shell, next to plain PySpark and pyiceberg
	@$(PY) bench/startup.py $(ARGS)

bench-install: $(INSTALLED) ## the wheel in an environment of its own: its size, and the time to the first table
	@$(PY) bench/install.py $(ARGS)

wheel: $(INSTALLED) ## the wheel, into dist: built twice, and the same both times
	@$(PY) bench/install.py --wheel

licenses: $(INSTALLED) ## the licences of all that driftline depends on, or downloads
	@$(PY) bench/licenses.py

bench-growth: $(INSTALLED) $(BENCH) ## how time and memory grow with rows, columns, depth, drift, files, batches (ARGS=--quick for a try)
	@bench/.venv/bin/python bench/growth.py $(ARGS)

bench-history: $(INSTALLED) ## one more batch behind 10^2 to 10^5 others (ARGS="--lines iceberg --sizes 100 1000")
	@$(PY) bench/history.py $(ARGS)

bench-scale: $(INSTALLED) ## a cluster of two workers up to 10^8 rows: tasks, the driver's memory, metadata (ARGS=--quick for a try)
	@PYTHONPATH=tests $(PY) bench/scale.py $(ARGS)

# Another Spark, if somebody has named one.
NAMED := $(if $(filter-out file,$(origin SPARK)),$(OTHER))
catalogs: $(INSTALLED) $(CATALOGS) $(NAMED:=/installed) ## a lake in each catalog that can be started here (ARGS="hive postgres" for some; SPARK=3.5.8)
	@PYTHONPATH=tests $(PY) bench/catalogs.py $(if $(NAMED),--with $(NAMED)/bin/python) $(ARGS)

readers: $(INSTALLED) $(READERS) ## which engines read the same values out of tables (ARGS="--readers DuckDB Trino" for some)
	@PYTHONPATH=tests $(PY) bench/readers.py --with bench/.readers/bin/python $(ARGS)

lock: $(INSTALLED) ## pin the dependencies anew (UPGRADE=1: at their newest)
	@$(LOCK) pyproject.toml --all-extras $(if $(UPGRADE),--upgrade) --output-file requirements/local.txt
	@$(LOCK) pyproject.toml --all-extras --group dev --constraint requirements/local.txt $(if $(UPGRADE),--upgrade) --output-file requirements/dev.txt
	@$(LOCK) pyproject.toml --all-extras --resolution lowest-direct --output-file requirements/oldest.txt
	@$(LOCK) --group build --constraint requirements/dev.txt --output-file requirements/build.txt

clean: ## remove what was made here
	rm -rf .venv bench/.venv bench/.duckdb bench/.readers bench/.catalogs bench/.expect build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "driftline needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (some minutes the first time)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(SPARKS:%=.venv/spark-%/installed): .venv/spark-%/installed: requirements/spark-%.txt
.venv/oldest/installed: requirements/oldest.txt
$(SPARKS:%=.venv/spark-%/installed) .venv/oldest/installed: $(INSTALLED)
	@test -x $(@D)/bin/python || $(PY) -m venv $(@D)
	@echo "Installing into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(filter requirements/%,$^)
	@$(PY) -c 'import sysconfig; place = sysconfig.get_path("purelib"); print(f"import site; site.addsitedir({place!r})")' \
		> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/libraries.pth
	@touch $@

.venv/image/installed: requirements/leave-out.sh $(INSTALLED)
	@rm -rf $(@D) && $(PY) -m venv --without-pip $(@D)
	@cp -al .venv/lib/python*/site-packages/. $(@D)/lib/python*/site-packages/
	@sh $< $(@D)/lib/python*/site-packages
	@touch $@

$(BENCH): bench/requirements.txt
$(DUCKDB): bench/requirements-duckdb.txt
$(READERS): bench/requirements-readers.txt
$(CATALOGS): bench/requirements-catalogs.txt
$(EXPECT): bench/requirements-expect.txt
$(BENCH) $(DUCKDB) $(READERS) $(CATALOGS) $(EXPECT):
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@echo "Installing what is compared with into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@
