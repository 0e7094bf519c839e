"""Two copies of one task at once: what both staged, and only one of them is in the output.

Spark runs a speculative copy only on another host, so this is a small cluster: a master and two
workers, which live at 127.0.0.1 and 127.0.0.2.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pyspark

from hocket.spark.session import prepare_environment
from tests.spark.kills.harness import ROWS_PER_BATCH, Run
from tests.spark.kills.processes import Session
from tests.support.processes.server import free_port
from tests.support.threads import until

HOSTS = ("127.0.0.1", "127.0.0.2")
BATCHES = 4
START_SECONDS = 120


def run(folder: Path) -> str:
    """Run it, check it, and say what was seen."""
    port = free_port()
    events = folder / "events"
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "200ms",
        "spark.executor.memory": "512m",
        "spark.driver.host": HOSTS[0],
        "spark.driver.bindAddress": HOSTS[0],
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    master = f"spark://{HOSTS[0]}:{port}"
    config = {"master": master, "settings": settings, "executors": len(HOSTS)}
    with Run(folder, "map", config=config, slow=True) as job, ExitStack() as cluster:
        events.mkdir()
        cluster.enter_context(_Cluster(folder, port))
        for _ in range(BATCHES):
            job.feed(ROWS_PER_BATCH)
        verdict = job.finish()
    speculative = [host for started in events.iterdir() for host in _speculative(started)]
    slow = job.control.slow_tasks()
    assert verdict.is_exact, f"speculation: {verdict}"
    assert speculative, "no speculative copy ran"
    return (
        f"speculation: {len(speculative)} speculative copies ran, on {sorted(set(speculative))}, "
        f"of {slow} slow tasks that had sent some of their rows; {verdict}"
    )


def _speculative(log: Path) -> list[str]:
    """The hosts of the speculative copies that ended well, as Spark logged them."""
    found = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            task, reason = event["Task Info"], event["Task End Reason"]["Reason"]
            if task["Speculative"] and reason == "Success":
                found.append(task["Host"])
    return found


class _Cluster:
    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._sessions: list[Session] = []

    def __enter__(self) -> None:
        prepare_environment(local=False)
        package = "org.apache.spark.deploy"
        self._start(HOSTS[0], f"{package}.master.Master", "--port", str(self._port))
        log = self._folder / f"Master-{HOSTS[0]}.log"
        until(lambda: "I have been elected leader" in log.read_text(), START_SECONDS)
        for host in HOSTS:
            place = f"spark://{HOSTS[0]}:{self._port}"
            work = str(self._folder / f"work-{host}")
            options = ("--cores", "1", "--memory", "1g", "--work-dir", work)
            self._start(host, f"{package}.worker.Worker", *options, place)
        until(lambda: log.read_text().count("Registering worker") == len(HOSTS), START_SECONDS)

    def __exit__(self, *_error: object) -> None:
        for session in self._sessions:
            session.kill()

    def _start(self, host: str, name: str, *arguments: str) -> None:
        command = Path(pyspark.__file__).parent / "bin" / "spark-class"
        log = self._folder / f"{name.rpartition('.')[2]}-{host}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(command), name, "--host", host, "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"},
                start_new_session=True,
            )
        self._sessions.append(Session(process))
