"""Spark's own cluster, as the pip's pyspark has it: a master and two workers, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pyspark

from hocket.spark.session import prepare_environment
from tests.support.processes.server import free_port
from tests.support.threads import until

HOSTS = ("127.0.0.1", "127.0.0.2")
START_SECONDS = 120.0


class Standalone:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        return f"spark://{HOSTS[0]}:{self._port}"

    def __enter__(self) -> Standalone:
        prepare_environment(local=False)
        package = "org.apache.spark.deploy"
        self._start("master", HOSTS[0], f"{package}.master.Master", "--port", str(self._port))
        log = self._folder / "master.log"
        until(lambda: "I have been elected leader" in log.read_text(), START_SECONDS)
        for host in HOSTS:
            work = str(self.work(host))
            options = ("--cores", "1", "--memory", "1g", "--work-dir", work)
            self._start(host, host, f"{package}.worker.Worker", *options, self.master)
        until(lambda: log.read_text().count("Registering worker") == len(HOSTS), START_SECONDS)
        return self

    def __exit__(self, *_error: object) -> None:
        for name in list(self._processes):
            self.kill(name)

    def work(self, host: str) -> Path:
        """Where a worker keeps what it runs."""
        return self._folder / f"work-{host}"

    def kill(self, name: str) -> None:
        """`kill -9` of a worker, or of the `master`, and of all that it has started."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def _start(self, name: str, host: str, main: str, *arguments: str) -> None:
        command = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self._folder / f"{name}.log").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [str(command), main, "--host", host, "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"},
                start_new_session=True,
            )
