"""The servers as fixtures: each is started by the first test that asks for it, and once in a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.cluster import Cluster
from servers.google import Google
from servers.kafka import Kafka
from servers.lakehouse import Lakehouse
from servers.rest import Rest
from servers.s3 import S3


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    with Rest(tmp_path_factory.mktemp("rest")) as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    S3.needed()
    with S3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Google]:
    Google.needed()
    with Google(tmp_path_factory.mktemp("google")) as running:
        yield running


@pytest.fixture(scope="session")
def lakehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakehouse]:
    S3.needed()
    with Lakehouse(tmp_path_factory.mktemp("lakehouse")) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
