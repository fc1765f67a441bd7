"""A Spark standalone cluster: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from driftline.runtime.session import prepare_environment
from servers.process import Process, Server, free_port


def driver_settings(jars: Iterable[Path]) -> dict[str, str]:
    """Settings of a Spark of this machine on such a cluster, with these jars for all of its processes."""
    class_path = os.pathsep.join(map(str, jars))
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


class Cluster(Server):
    """A master and so many workers of one core each; they keep logs and work files in ``folder``.

    Executors run this Python, so that what is installed beside it is there for them too.
    """

    def __init__(self, folder: Path, port: int = 0, workers: int = 2, memory: str = "1g") -> None:
        self.folder = folder.absolute()
        self.port = port or free_port()
        self.memory = memory
        self._count = workers
        self.workers: list[Process] = []
        self._running = ExitStack()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def page(self) -> str:
        """The master's own web page."""
        text = (self.folder / "master.log").read_text()
        return "http://127.0.0.1:" + re.findall(r"MasterUI.* on port (\d+)", text)[-1]

    def start(self) -> None:
        """Starts all, and returns when the workers are known to the master."""
        self.folder.mkdir(parents=True, exist_ok=True)
        prepare_environment()
        with ExitStack() as started:
            self._launch(started, "master", ["--port", str(self.port)], ready="elected leader")
            for i in range(self._count):
                options = [
                    "--cores",
                    "1",
                    "--memory",
                    self.memory,
                    "--work-dir",
                    str(self.folder / f"work-{i}"),
                ]
                worker = self._launch(
                    started, f"worker-{i}", [*options, self.url], ready="Successfully registered"
                )
                self.workers.append(worker)
            self._running = started.pop_all()

    def stop(self) -> None:
        self._running.close()

    def _launch(self, started: ExitStack, name: str, arguments: list[str], ready: str) -> Process:
        role = name.partition("-")[0].title()
        command = [
            str(Path(os.environ["SPARK_HOME"], "bin", "spark-class")),
            f"org.apache.spark.deploy.{role.lower()}.{role}",
            *("--host", "127.0.0.1", "--webui-port", "0"),
            *arguments,
        ]
        env = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
        }
        process = Process(command, self.folder / f"{name}.log", ready, env)
        started.callback(process.stop)
        return process
