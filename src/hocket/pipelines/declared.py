"""What the files of a pipeline declare: noted here on its way into Spark's graph.

Spark keeps the graph in its server and shows little of it. So each declaration passes through here,
and leaves a note of where it stands, which topics it reads and which it writes. A stream from a
topic without an index gets one with a name that tells whose it is, so that its lag can be seen.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

from hocket.model import NAME_BYTES_MAX
from hocket.pipelines.faults import PipelineFault, Place, Places

if TYPE_CHECKING:
    from pyspark.pipelines.flow import Flow
    from pyspark.pipelines.output import Output
    from pyspark.sql import SparkSession

FORMAT = "hocket"
MISFITS = "_misfits"  # ends the name of a sink whose records are counted as bad

_CREATES = re.compile(
    r"^\s*CREATE\s+(?:OR\s+REFRESH\s+)?(?:STREAMING\s+TABLE|MATERIALIZED\s+VIEW|TEMPORARY\s+VIEW"
    r"|FLOW)\s+(?:IF\s+NOT\s+EXISTS\s+)?([\w.`]+)",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Source:
    """A stream or a table that a flow reads from topics."""

    flow: str
    place: Place | None
    topics: tuple[str, ...]  # those that are named; a pattern names none
    index: str  # empty: it is a batch, which has none
    options: dict[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that a sink writes."""

    sink: str
    place: Place | None
    topic: str  # empty: a column of the rows names it
    is_misfits: bool
    options: dict[str, str] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class Declared:
    places: Places
    sources: list[Source] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)


class NotingRegistry(SparkConnectGraphElementRegistry):
    def __init__(self, spark: SparkSession, graph: str, pipeline: str, declared: Declared) -> None:
        super().__init__(spark, graph)
        self._pipeline = pipeline
        self._declared = declared
        self._noting = _NotingClient(self._client, self)
        self._client = self._noting

    def register_output(self, output: Output) -> None:
        from pyspark.pipelines.output import Sink, Table

        place = self._place(output.source_code_location)
        self._declared.places.outputs[output.name] = place
        if isinstance(output, Table):
            self._declared.tables.append(output.name)
        if isinstance(output, Sink) and output.format == FORMAT:
            options = _plain(output.options)
            if "archive" not in options:
                topic = options.get("topic", "")
                bad = output.name.endswith(MISFITS)
                self._declared.targets.append(Target(output.name, place, topic, bad, options))
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        self._declared.places.flows[flow.name] = self._place(flow.source_code_location)
        super().register_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        for found in _CREATES.finditer(sql_text):
            line = sql_text.count("\n", 0, found.start(1)) + 1
            name = found[1].replace("`", "").rpartition(".")[2]
            place = Place(str(file_path), line)
            self._declared.places.flows[name] = self._declared.places.outputs[name] = place
            self._declared.tables.append(name)
        super().register_sql(sql_text, file_path)

    def _place(self, location: Any) -> Place:
        """Where it is declared: in the pipeline's own file, also if a library did it for that."""
        places = self._declared.places
        frame = sys._getframe()
        while frame is not None:
            if places.is_ours(frame.f_code.co_filename):
                return Place(places.relative(frame.f_code.co_filename), frame.f_lineno)
            frame = frame.f_back  # type: ignore[assignment]
        return Place(places.relative(location.filename), location.line_number)

    def note_reads(self, command: Any) -> None:
        """Note the topics that the flow in this command reads; name the indexes of its streams."""
        pipeline = command.pipeline_command
        if pipeline.WhichOneof("command_type") != "define_flow":
            return
        definition = pipeline.define_flow
        reads = [read for read in _reads(definition) if read.data_source.format == FORMAT]
        for number, read in enumerate(reads):
            options = _plain(read.data_source.options)
            if read.is_streaming and "index" not in options and "kafka.group.id" not in options:
                suffix = f"-{number + 1}" if number else ""
                index = index_name(self._pipeline, definition.flow_name + suffix)
                read.data_source.options["index"] = options["index"] = index
            self._declared.sources.append(
                Source(
                    definition.flow_name,
                    self._declared.places.flows.get(definition.flow_name),
                    _topics(options),
                    options.get("index", options.get("kafka.group.id", ""))
                    if read.is_streaming
                    else "",
                    options,
                )
            )


class _NotingClient:
    """Spark's client, which sees each command on its way out."""

    def __init__(self, client: Any, registry: NotingRegistry) -> None:
        self._inner = client
        self._registry = registry

    def execute_command(self, command: Any) -> Any:
        self._registry.note_reads(command)
        return self._inner.execute_command(command)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def index_name(pipeline: str, flow: str) -> str:
    """The name of the index of a flow's stream."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{pipeline}.{flow}")
    if len(name) > NAME_BYTES_MAX:
        raise PipelineFault(
            f"the names of the pipeline and of its flow {flow!r} make an index of {len(name)} "
            f"characters; it may have {NAME_BYTES_MAX}. Give its stream the option index"
        )
    return name


def _topics(options: dict[str, str]) -> tuple[str, ...]:
    if "assign" in options:
        import json

        try:
            return tuple(sorted(json.loads(options["assign"])))
        except (ValueError, TypeError):  # the reader says what is wrong with it
            return ()
    names = options.get("subscribe", "").split(",")
    return tuple(sorted({name.strip() for name in names if name.strip()}))


def _plain(options: Any) -> dict[str, str]:
    """Names in lower case, as Spark hands them to a source."""
    return {str(name).lower(): str(value) for name, value in dict(options).items()}


def _reads(message: Any) -> Iterator[Any]:
    """All reads of data sources in a plan, wherever they are."""
    for field_of, value in message.ListFields():
        if field_of.message_type is None or field_of.message_type.GetOptions().map_entry:
            continue
        parts = value if field_of.is_repeated else [value]
        for part in parts:
            if field_of.message_type.name == "Read":
                if part.WhichOneof("read_type") == "data_source":
                    yield part
            else:
                yield from _reads(part)
