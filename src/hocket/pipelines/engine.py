"""The Spark of a pipeline: started once, kept between updates, with a catalogue that outlives it.

Declarative Pipelines run in a Spark Connect server. The server runs in a JVM that this process
starts and that ends with it. What the JVM and its workers write to stderr goes to the pipeline's
log, not to the terminal. Spark's default catalogue forgets the tables when Spark ends, and the next
run would find their files and not know them; so the catalogue lies with the pipeline's state.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

from hocket.pipelines.faults import PipelineFault, Place, Places, fault
from hocket.spark import java
from hocket.spark.session import is_local, prepare_environment, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hocket.pipelines.declared import Declared
    from hocket.pipelines.project import Project

Say = Callable[[str], None]
_TABLES = re.compile(r"table|view", re.IGNORECASE)
FAILURE = ("failed", "FAILED")
STOP_SECONDS = 15.0  # for each step of stopping Spark, which waits for ever for a dead master
ASKED_AGAIN_MAX = 3  # within a second or two; a JVM of ours that is gone does not come back
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


class Engine:
    """Spark for one pipeline; `with Engine(...)` starts it, and stops it at the end."""

    def __init__(
        self, project: Project, *, master: str, config: Mapping[str, str] | None = None
    ) -> None:
        self.project = project
        self.master = master
        self._config = dict(config or {})
        self._spark: SparkSession | None = None

    def __enter__(self) -> Engine:
        java.require()
        _require_pipelines()
        prepare_environment(local=is_local(self.master))
        self.project.log.parent.mkdir(parents=True, exist_ok=True)
        with _stderr_to(self.project.log):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        from pyspark import SparkContext

        if self._spark is not None:
            _within(STOP_SECONDS, self._spark.stop)
            self._spark = None
        context = SparkContext._active_spark_context
        if context is not None:
            _within(STOP_SECONDS, context.stop)
            gateway = SparkContext._gateway
            if gateway is not None:
                _within(STOP_SECONDS, gateway.shutdown)
                process = getattr(gateway, "proc", None)
                if process is not None:  # the JVM ends when its stdin does
                    process.stdin.close()
                    try:
                        process.wait(STOP_SECONDS)
                    except TimeoutExpired:
                        process.kill()
                        process.wait()
                SparkContext._gateway = SparkContext._jvm = None

    def _start(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark import SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        chosen = {**self._settings(), **self._config}
        if JAVA_OPTIONS in self._config:  # those of the user beside our own
            chosen[JAVA_OPTIONS] = f"{self._settings()[JAVA_OPTIONS]} {self._config[JAVA_OPTIONS]}"
        os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", os.urandom(16).hex())
        try:
            with _same_interrupts():
                ConnectSession._start_connect_server(self.master, chosen)
            package = "org.apache.spark.sql.connect.service.SparkConnectService$"
            service = getattr(getattr(SparkContext._jvm, package), "MODULE$")
            url = f"sc://localhost:{service.localPort()}"
            # Else `SparkSession.active()` in a pipeline's file is the server's own session.
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
            spark = ConnectSession.builder.remote(url).getOrCreate()
            # Spark's own would ask for ten minutes: for a server elsewhere that may come back.
            spark.client.set_retry_policies([DefaultPolicy(max_retries=ASKED_AGAIN_MAX)])
            self._spark = spark  # type: ignore[assignment]
        except (Py4JError, PySparkException, OSError, TypeError) as error:
            raise PipelineFault(
                f"Spark did not start at the master {self.master}: {_last_words(error)}. Its log "
                f"is {self.project.log}"
            ) from error

    def _settings(self) -> dict[str, str]:
        state = self.project.state
        state.mkdir(parents=True, exist_ok=True)
        return {
            **settings(self.master),
            "spark.app.name": f"hocket pipeline {self.project.name}",
            "spark.log.level": "WARN",
            "spark.ui.showConsoleProgress": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.sql.connect.serverStacktrace.enabled": "false",
            "spark.sql.catalogImplementation": "hive" if self._has_tables() else "in-memory",
            "spark.sql.warehouse.dir": f"file://{state / 'tables'}",
            "spark.hadoop.javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={state / 'catalogue'};create=true"
            ),
            JAVA_OPTIONS: quoted(f"-Dderby.stream.error.file={state / 'logs' / 'derby.log'}"),
        }

    def _has_tables(self) -> bool:
        """Whether a catalogue is needed, which takes seconds to open: what has no tables, and so
        nothing but topics and lakes, does without. A word too many only costs these seconds."""
        texts = (file.read_text(errors="replace") for file in self.project.files)
        return any(_TABLES.search(text) for text in texts)

    def problem(self, seconds: float = 0.0) -> str:
        """Why Spark is of no use any more; empty: its JVM still runs after so long."""
        from pyspark import SparkContext

        process = getattr(SparkContext._gateway, "proc", None)
        if process is None:
            return ""
        try:
            code = process.wait(seconds)
        except TimeoutExpired:
            return ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return (
            f"Spark's JVM {how}; its log is {self.project.log}. Nothing is half done: the next run "
            "goes on"
        )

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "the engine is not started"
        return self._spark

    def graph(self) -> tuple[str, Declared]:
        """Declare everything anew. Raises PipelineFault with the file and the line."""
        from pyspark.pipelines.graph_element_registry import graph_element_registration_context
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

        from hocket.pipelines.declared import Declared, NotingRegistry

        project = self.project
        graph = create_dataflow_graph(
            self.spark,
            default_catalog=project.catalog,
            default_database=project.database,
            sql_conf=project.configuration,
        )
        declared = Declared(Places(project.directory))
        registry = NotingRegistry(self.spark, graph, project.name, declared)
        with _in_directory(project.directory), graph_element_registration_context(registry):
            for file in project.files:
                place = Place(declared.places.relative(file))
                try:
                    if file.suffix == ".py":
                        self._import(file, graph)
                    else:
                        registry.register_sql(file.read_text(), file.relative_to(project.directory))
                except SystemExit as error:
                    at = declared.places.of_traceback(error) or place
                    raise PipelineFault(
                        f"{at}: the file ends Python (exit code {error.code}) and declares nothing "
                        "behind that"
                    ) from error
                except Exception as error:
                    raise fault(error, declared.places, place) from error
        return graph, declared

    def _import(self, file: Path, graph: str) -> None:
        from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
        from pyspark.pipelines.block_session_mutations import block_session_mutations

        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__dict__["spark"] = self.spark  # as Spark's own command does
        analysis = add_pipeline_analysis_context(
            spark=self.spark, dataflow_graph_id=graph, flow_name=None
        )
        with analysis, block_session_mutations():
            spec.loader.exec_module(module)

    def update(self, graph: str, declared: Declared, *, dry: bool = False, say: Say) -> None:
        """Run one triggered update to its end; `say` gets Spark's words about it.

        Raises PipelineFault if a flow fails.
        """
        from pyspark.pipelines.spark_connect_pipeline import start_run

        failures: list[str] = []
        try:
            for result in start_run(
                self.spark,
                graph,
                full_refresh=[],
                full_refresh_all=False,
                refresh=[],
                dry=dry,
                storage=self.project.storage,
            ):
                if "pipeline_event_result" in result:
                    message = result["pipeline_event_result"].event.message
                    say(message)
                    if any(word in message for word in FAILURE):
                        failures.append(message)
        except Exception as error:
            words = RuntimeError("\n".join([*failures, str(error)]))
            raise fault(words, declared.places) from error


def _within(seconds: float, stop: Callable[[], object]) -> None:
    """Call it, and leave it to itself if it takes longer; what it stops may be gone already."""

    def work() -> None:
        with suppress(Exception):
            stop()

    thread = threading.Thread(target=work, name="stopping Spark", daemon=True)
    thread.start()
    thread.join(seconds)


def quoted(option: str) -> str:
    """One option of Java's among others, whatever is in it: a path may have spaces."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _require_pipelines() -> None:
    try:
        import pyspark.pipelines.spark_connect_pipeline  # noqa: F401
    except ImportError as error:
        raise PipelineFault(
            f"pipelines need {error.name or 'pyspark'}: pip install 'hocket[spark]'"
        ) from error


@contextmanager
def _in_directory(directory: Path) -> Iterator[None]:
    """The files of a pipeline find each other, and what they open, in its directory."""
    before = os.getcwd()
    sys.path.insert(0, str(directory))
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
        with suppress(ValueError):
            sys.path.remove(str(directory))


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """What is started meanwhile writes its stderr to the file."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


@contextmanager
def _same_interrupts() -> Iterator[None]:
    """Spark's context takes Ctrl-C for itself; whoever has it keeps it."""
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, kept)


def _last_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Exception" in line or "Error" in line]
    return (causes or lines or [type(error).__name__])[0].removeprefix(": ")
