"""`hocket pipeline ...`: data pipelines on Spark, made, checked, run and looked at."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.exits import say
from hocket.cli.parameters import SECONDS
from hocket.cli.pipeline_view import JsonView, LiveView, PlainView, summary
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.cli.stop_signals import StopSignals
from hocket.deadline import in_seconds
from hocket.errors import HocketError, NoConnection, Timeout

if TYPE_CHECKING:
    from hocket.pipelines.engine import Engine
    from hocket.pipelines.project import Project
    from hocket.pipelines.runs import Run

EVERY_DEFAULT = 10.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.5
KINDS = ("archive", "replay", "aggregate", "route")

directory_argument = click.argument(
    "directory", default=".", type=click.Path(path_type=Path), metavar="[DIR]"
)
conf_option = click.option(
    "--conf", "config", multiple=True, metavar="NAME=VALUE",
    help="A setting of Spark, as spark-submit takes it. [several]",
)  # fmt: skip


@click.group(
    cls=Group,
    examples="""
$ hocket pipeline init shop
$ hocket pipeline run shop
$ hocket pipeline init lake --from archive --topic orders
""",
)
def pipeline() -> None:
    """Run data pipelines on Spark.

    A pipeline is a directory with a declaration of Spark's: spark-pipeline.yml, Python and SQL
    files. Needs Java 17 and pip install 'hocket[spark]'.
    """


@pipeline.command(
    "init",
    cls=Command,
    examples="""
$ hocket pipeline init shop                             # shop.in to shop.out
$ hocket pipeline init lake --from archive --topic orders
$ hocket pipeline init again --from replay --topic orders --lake lake/lake --to orders.again
""",
)
@click.argument("name")
@click.option("--from", "kind", type=click.Choice(KINDS), help="Begin with a built-in pipeline.")
@click.option("--topic", metavar="TOPIC", help="What it reads. [default: NAME.in]")
@click.option("--to", metavar="TOPIC", help="What it writes. [default: NAME.out]")
@click.option(
    "--lake", type=click.Path(path_type=Path), metavar="PATH",
    help="The lake of Parquet files. [default: NAME/lake]",
)  # fmt: skip
@server_options
@pass_server
def init(
    server: Server, /, name: str, kind: str | None, topic: str | None, to: str | None,
    lake: Path | None,
) -> None:  # fmt: skip
    """Write the directory NAME with a pipeline that runs as it stands.

    Without --from, every value of the topic NAME.in arrives in NAME.out. The topics are made if a
    broker answers.
    """
    from hocket.pipelines import making

    _, topics = making.make(
        name, Path.cwd(), kind=kind or making.PLAIN, topic=topic, to=to, lake=lake
    )
    click.echo(f"{name}: run it with `hocket pipeline run {name}`")
    try:
        with server.connect() as client:
            there = set(client.topics(timeout=server.timeout))
            for each in topics:
                if each not in there:
                    client.create_topic(each, exist_ok=True, timeout=server.timeout)
                    click.echo(f"made the topic {each}")
    except (NoConnection, Timeout):
        say(f"no broker answers at {server.server}; when one does, make the topics that are "
            f"missing: {'; '.join(f'hocket topic create {each}' for each in topics)}")  # fmt: skip


@pipeline.command("check", cls=Command, examples="\n$ hocket pipeline check shop\n")
@directory_argument
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@conf_option
@output.json_option
@server_options
@pass_server
def check(
    server: Server, /, directory: Path, master: str, config: tuple[str, ...], as_json: bool
) -> None:
    """Find out whether the pipeline in DIR can run, without running it.

    Looked at are Java, the master, the files, the topics and the rights to them, and, by a dry run
    of Spark's, tables and columns. What is wrong is said with its file and line.
    """
    from hocket.pipelines import checking
    from hocket.pipelines.engine import Engine
    from hocket.pipelines.faults import PipelineFault

    project = _load(directory)
    if problem := checking.master_problem(master):
        raise PipelineFault(problem)
    with server.connect() as client:
        _tell(server)
        project.check_owner(client.cluster)
        with Engine(project, master=master, config=_config(config)) as engine:
            graph, declared = engine.graph()
            checking.check_topics(client, declared, server.timeout)
            engine.update(graph, declared, dry=True, say=lambda _: None)
    if as_json:
        output.print_json(
            {
                "pipeline": project.name,
                "reads": sorted({name for each in declared.sources for name in each.topics}),
                "writes": sorted({each.topic for each in declared.targets if each.topic}),
                "tables": sorted(declared.tables),
            }
        )
    else:
        click.echo(f"{project.name}: nothing is wrong")


def _run_options(command: Any) -> Any:
    for option in reversed(
        [
            directory_argument,
            click.option(
                "--every", type=SECONDS, metavar="DURATION",
                help="How often an update begins. [default: 10s]",
            ),
            click.option("--once", is_flag=True, help="One update, and end."),
            click.option(
                "--retries", type=click.IntRange(min=0), default=3, show_default=True,
                help="How often an update that fails is tried again.",
            ),
            conf_option,
            output.json_option,
            server_options,
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@pipeline.command(
    "run",
    cls=Command,
    examples="""
$ hocket pipeline run shop
$ hocket pipeline run shop --every 30s
$ hocket pipeline run shop --once --json
""",
)
@_run_options
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@pass_server
def run(server: Server, /, master: str, **given: Any) -> None:
    """Run the pipeline in DIR: an update every 10 seconds, until it is stopped.

    What is already there is done first; Spark stays between updates. If the run is killed, the next
    one goes on where it was, and nothing is written twice.
    """
    _go(server, master, {}, **given)


@pipeline.command(
    "submit",
    cls=Command,
    examples="\n$ hocket pipeline submit shop --master spark://spark-1:7077\n",
)
@_run_options
@click.option("--master", required=True, metavar="URL", help="Spark's master: spark://host:7077.")
@click.option(
    "--ship/--no-ship", default=True, show_default=True,
    help="Send Hocket along; not needed where it is installed on all machines.",
)  # fmt: skip
@pass_server
def submit(server: Server, /, master: str, ship: bool, **given: Any) -> None:
    """Run the pipeline in DIR on a cluster of Spark's.

    The driver runs here, the tasks on the cluster's machines, which need Python with pyspark,
    pyarrow and pandas; Hocket is sent along. The storage and a lake must be on a file system that
    all of them share.
    """
    from hocket.pipelines.shipping import shipped

    project = _load(given["directory"])
    _go(server, master, shipped(project.state) if ship else {}, **given)


def _go(
    server: Server, master: str, shipping: dict[str, str], *, directory: Path,
    every: float | None, once: bool, retries: int, config: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    from hocket.pipelines import checking
    from hocket.pipelines.engine import Engine
    from hocket.pipelines.faults import PipelineFault
    from hocket.pipelines.running import Running
    from hocket.pipelines.runs import FAILED, LiveRun
    from hocket.spark import java

    if once and every is not None:
        raise click.UsageError("--once is one update, and --every says how often; give one of them")
    project = _load(directory)
    java.require()
    if problem := checking.master_problem(master):
        raise PipelineFault(problem)
    view = JsonView() if as_json else LiveView() if sys.stdout.isatty() else PlainView()
    with StopSignals() as signals, server.connect() as client:
        _tell(server)
        project.claim(client.cluster)
        live = LiveRun(client, project.name, server.timeout)
        live.begin(directory=str(project.directory), master=master)
        engine: Engine | None = None
        try:
            if not as_json:
                log = os.path.relpath(project.log)
                view.line(f"{project.name}: starting Spark at {master} (its log: {log})")
            with Engine(project, master=master, config={**shipping, **_config(config)}) as engine:
                running = Running(
                    engine, client, view, server.timeout,
                    None if once else EVERY_DEFAULT if every is None else every,
                    lambda: bool(signals.requested), retries,
                    lambda: checking.master_problem(master),
                )  # fmt: skip
                running.run(live)
        except BaseException as error:
            with suppress(HocketError):
                live.end(FAILED, " ".join(str(error).split()) or type(error).__name__)
            raise
        finally:
            if isinstance(view, LiveView):
                view.clear()
        live.end(running.state())
        if not as_json:
            reason = live.stop_reason or ("a signal" if signals.requested else "")
            view.line(f"{project.name}: {running.state()}{f' ({reason})' if reason else ''}")


@pipeline.command("list", cls=Command, examples="\n$ hocket pipeline list\n")
@output.json_option
@server_options
@pass_server
def list_runs(server: Server, /, as_json: bool) -> None:
    """List the pipelines that have run, and how their last runs are doing."""
    from hocket.pipelines.runs import Runs

    with server.connect() as client:
        found = list(Runs(client, server.timeout).all().values())
    if as_json:
        output.print_json([each.fields() for each in found])
        return
    rows = [
        (each.pipeline, each.state, each.updates, each.rows, each.bad,
         sum(each.update["lag"].values()) if each.update else "-", f"{each.host}:{each.pid}",
         output.moment(round(each.began * 1e6))[:19] + "Z")
        for each in found
    ]  # fmt: skip
    columns = ["PIPELINE", "STATE", "UPDATES>", "ROWS>", "BAD>", "LAG>", "WHERE", "SINCE"]
    click.echo(output.table(columns, rows))


@pipeline.command("status", cls=Command, examples="\n$ hocket pipeline status shop\n")
@click.argument("name")
@output.json_option
@server_options
@pass_server
def status(server: Server, /, name: str, as_json: bool) -> None:
    """Show how the last run of the pipeline NAME is doing.

    Ends with 0 if it runs or has ended well, and with 1 if it has failed or died.
    """
    from hocket.pipelines.runs import DIED, FAILED, Runs

    with server.connect() as client:
        run = Runs(client, server.timeout).one(name)
    if as_json:
        output.print_json(run.fields())
    else:
        click.echo("\n".join(_status_lines(run)))
    if run.state in (DIED, FAILED):
        raise click.exceptions.Exit(1)


def _status_lines(run: Run) -> list[str]:
    lines = [
        f"{run.pipeline}: {run.state}, since {output.moment(round(run.began * 1e6))[:19]}Z",
        f"run {run.run}, process {run.pid} on {run.host}, master {run.master}, {run.directory}",
    ]
    if run.update:
        lines.append(f"{summary(run.update)}; {output.number(run.rows)} rows in all")
    if run.error:
        lines.append(f"error: {run.error}")
    return lines


@pipeline.command("stop", cls=Command, examples="\n$ hocket pipeline stop shop\n")
@click.argument("name")
@server_options
@pass_server
def stop(server: Server, /, name: str) -> None:
    """Stop the run of the pipeline NAME, wherever it runs, and wait until it has ended.

    An update that is under way may end first. The next run goes on where this one was.
    """
    from hocket.pipelines.faults import PipelineFault
    from hocket.pipelines.runs import RUNNING, Runs

    with server.connect() as client:
        runs = Runs(client, server.timeout)
        run = runs.ask_to_stop(name)
        if run.state != RUNNING:
            click.echo(f"{name}: {run.state} already")
            return
        deadline = time.monotonic() + STOP_SECONDS
        while runs.is_attached(name):
            if time.monotonic() > deadline:
                raise PipelineFault(
                    f"{name}: process {run.pid} on {run.host} was asked to stop and has not ended "
                    f"within {in_seconds(STOP_SECONDS)}; it may be killed, nothing is lost"
                )
            time.sleep(LOOK_SECONDS)
        click.echo(f"{name}: {runs.one(name).state}")


@pipeline.command(
    "logs",
    cls=Command,
    examples="""
$ hocket pipeline logs shop
$ hocket pipeline logs shop --json
""",
)
@click.argument("name")
@output.json_option
@server_options
@pass_server
def logs(server: Server, /, name: str, as_json: bool) -> None:
    """Print what the runs of the pipeline NAME have said, the oldest first.

    What Spark itself writes is in the file that `run` names.
    """
    from hocket.pipelines.runs import Runs

    with server.connect() as client:
        runs = Runs(client, server.timeout)
        runs.one(name)
        events = runs.events(name)
    for event in events:
        if as_json:
            output.print_json(event)
        else:
            click.echo(f"{output.moment(round(event.get('at', 0) * 1e6))[:19]}Z {_words(event)}")


def _words(event: dict[str, Any]) -> str:
    kind = event.get("kind")
    if kind == "started":
        return (
            f"run {event['run']} started as process {event['pid']} on {event['host']}, "
            f"master {event['master']}"
        )
    if kind == "update":
        return summary(event)
    if kind == "ended":
        return f"run {event['run']} {event['state']}{': ' * bool(event['error'])}{event['error']}"
    return str(event.get("text") or f"{kind} of run {event.get('run')}")


def _load(directory: Path) -> Project:
    from hocket.pipelines import project
    from hocket.pipelines.faults import PipelineFault

    try:
        return project.load(directory)
    except ModuleNotFoundError as error:
        raise PipelineFault(f"pipelines need {error.name}: pip install 'hocket[spark]'") from error


def _tell(server: Server) -> None:
    from hocket.pipelines import reaching

    reaching.tell(
        server=server.server,
        token_file=server.token_file,
        tls_ca=server.tls_ca,
        tls_cert=server.tls_cert,
        tls_key=server.tls_key,
    )


def _config(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(
                f"it looks like spark.executor.memory=2g, not '{each}'", param_hint="'--conf'"
            )
        found[name] = value
    return found
