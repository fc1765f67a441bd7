#!/bin/sh
# Deletes from an environment what no command of driftline reaches: leave-out.sh SITE_PACKAGES. The image is made so, and
# `make test-image` runs lakes, stores, catalogs and Kafka in such an environment. A pattern that matches nothing is an error.
set -eu
cd "$1"

# RocksDB keeps the state of Spark's streaming queries. A capture has none.
rm pyspark/jars/rocksdbjni-*.jar

# Machine learning and graphs, with the mathematics below them.
rm pyspark/jars/spark-mllib*.jar pyspark/jars/spark-graphx_*.jar
rm pyspark/jars/breeze*.jar pyspark/jars/spire*.jar pyspark/jars/cats-kernel_*.jar pyspark/jars/algebra_*.jar
rm pyspark/jars/lapack-*.jar pyspark/jars/arpack*.jar pyspark/jars/JTransforms-*.jar pyspark/jars/JLargeArrays-*.jar

# Spark Connect, whose sessions are refused, and pipelines, which are made of it.
rm -r pyspark/jars/connect-repl pyspark/jars/spark-connect*.jar pyspark/jars/spark-pipelines_*.jar

# Scala's shell and compiler: Spark compiles its queries by Janino.
rm pyspark/jars/scala-compiler-*.jar pyspark/jars/spark-repl_*.jar

# Machine code of other systems than Linux, and of HTTP/3.
rm pyspark/jars/netty-*-osx-*.jar pyspark/jars/netty-*-windows-*.jar pyspark/jars/netty-codec-native-quic-*-linux-*.jar

# Hive's server, and a metastore within Spark: a metastore on a server is asked by Thrift.
rm pyspark/jars/spark-hive-thriftserver_*.jar pyspark/jars/datanucleus-*.jar pyspark/jars/derby*.jar

# Examples, and the tests of libraries.
rm -r pyspark/examples pyspark/data numpy/tests numpy/*/tests pandas/tests pyarrow/tests

# Arrow's headers, Flight, and further copies of libraries: the loader asks for the names that end in .so.NUMBER.
rm -r pyarrow/include pyarrow/src
rm pyarrow/_flight* pyarrow/libarrow_flight.so* pyarrow/libarrow_python_flight.so*
rm pyarrow/libarrow_python.so pyarrow/libarrow_python.so.*.*
rm pyarrow/libarrow_python_parquet_encryption.so pyarrow/libarrow_python_parquet_encryption.so.*.*

# gRPC, of which only the compiler of Protobuf is used.
rm -r grpc

# Amazon's services other than the store, its queues, and those that hand out keys.
find botocore/data -mindepth 1 -maxdepth 1 -type d \
	! -name s3 ! -name sqs ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -r {} +
