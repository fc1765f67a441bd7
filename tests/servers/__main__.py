"""`python -m servers kafka|rest|s3|lakehouse|cluster`: starts one in the foreground, says how to use it, stops it on Ctrl-C."""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

from servers.cluster import Cluster
from servers.kafka import PASSWORDS, Kafka
from servers.lakehouse import Lakehouse
from servers.process import Server
from servers.registry import Registry
from servers.rest import Rest
from servers.s3 import S3

DOC = Path(__file__).parents[2] / "docs" / "cluster.md"


def example(url: str) -> str:
    """The Python example of docs/cluster.md, for the cluster at ``url``."""
    code = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)[0]
    return code.replace("spark://127.0.0.1:7077", url)


def _kafka(folder: Path) -> tuple[Server, Callable[[], str]]:
    kafka, registry = Kafka(folder, _port(9092), _port(9093)), Registry(port=_port(8081))

    def text() -> str:
        registry.start()  # in this process, with which it ends
        return f"""\
A Kafka broker at {kafka.address}. Topics are made when they are first written to.

  .venv/bin/driftline capture kafka://{kafka.address}/TOPIC --into shop.events --name events

With TLS, for those who log in, at {kafka.secured}. In driftline.toml:

  [kafka]
  security.protocol = "SASL_SSL"
  sasl.mechanism = "SCRAM-SHA-512"
  sasl.username = "alice"
  sasl.password = "${{KAFKA_PASSWORD}}"
  ssl.ca.location = "{kafka.authority.file}"

In the shell that uses it:

  export KAFKA_PASSWORD={shlex.quote(PASSWORDS["alice"])}

A schema registry at {registry.url}, for --registry.
"""

    return kafka, text


def _rest(folder: Path) -> tuple[Server, Callable[[], str]]:
    rest = Rest(folder, _port(8181))
    return (
        rest,
        lambda: (
            f"""\
An Iceberg REST catalog at {rest.uri}. In driftline.toml:

  [catalog]
  type = "rest"
  uri = "{rest.uri}"
"""
        ),
    )


def _s3(folder: Path) -> tuple[Server, Callable[[], str]]:
    s3 = S3(folder, _port(7070))
    names = {**s3.environment, "AWS_ENDPOINT_URL": s3.endpoint}
    return (
        s3,
        lambda: (
            f"""\
An S3 server at {s3.endpoint}, with the bucket {s3.bucket("try")}. In the shell that uses it:

{"".join(f"  export {name}={value}{chr(10)}" for name, value in names.items())}"""
        ),
    )


def _lakehouse(folder: Path) -> tuple[Server, Callable[[], str]]:
    lakehouse = Lakehouse(folder, _port(7070), _port(8181))

    def text() -> str:
        lakehouse.s3.bucket("incoming")
        names = "".join(f"  export {name}={value}\n" for name, value in lakehouse.environment.items())
        return f"""\
An S3 server at {lakehouse.s3.endpoint}, and a REST catalog whose tables are in it. In the shell that uses it:

{names}
In driftline.toml:

{indent(lakehouse.settings, "  ")}
The bucket s3://incoming is for files that are to come in."""

    return lakehouse, text


def _cluster(folder: Path) -> tuple[Server, Callable[[], str]]:
    cluster = Cluster(folder, _port(7077))
    return (
        cluster,
        lambda: (
            f"""\
A Spark cluster at {cluster.url}: a master and two workers of one core each. Its page: {cluster.page}
Save this as try.py, and run it with .venv/bin/python try.py:

{example(cluster.url)}"""
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="servers", description=__doc__)
    servers = {"kafka": _kafka, "rest": _rest, "s3": _s3, "lakehouse": _lakehouse, "cluster": _cluster}
    parser.add_argument("server", choices=servers)
    parser.add_argument("--folder", type=Path, help="where its files are kept; a temporary one if not named")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix=f"{args.server}-") as temporary:
        folder = args.folder or Path(temporary)
        print(f"Starting (the first time, some minutes of downloads). Files and logs: {folder}", flush=True)
        try:
            server, text = servers[args.server](folder)
            with server:
                print(f"\n{text()}\nCtrl-C stops it.", flush=True)
                signal.pause()
        except KeyboardInterrupt:
            print("\nStopped.")


def _port(usual: int) -> int:
    """The usual port, or 0 if somebody has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            return 0
    return usual


if __name__ == "__main__":
    main()
