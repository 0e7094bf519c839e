"""JSON values with a schema: those that fit become columns, the others go to a side topic.

The schema is given, or inferred from the topic's first records and then kept in a file of the
pipeline's directory, where it is read, changed and put under version control. What does not fit is
never dropped: it is published to the side topic as it was, with the reason and its place as
headers, and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hocket.errors import Timeout
from hocket.pipelines.declared import MISFITS
from hocket.pipelines.faults import POSITION, PipelineFault, plain
from hocket.pipelines.reaching import broker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

SAMPLE = 1000  # records that a schema is inferred from
SAMPLE_SECONDS = 5.0
_CORRUPT = "_corrupt"
# A quoted name is matched first: `--` within it begins no comment.
_COMMENT = re.compile(r"(`[^`]*`)|--.*")


class Fitting:
    """The values of a stream of messages, by whether they fit a schema."""

    def __init__(self, messages: Callable[[], DataFrame], schema: StructType) -> None:
        self._messages = messages
        self._schema = schema

    def fitting(self) -> DataFrame:
        """The messages whose values fit, with a column `json` that has the fields."""
        return self._judged().where("misfit IS NULL").drop("misfit")

    def misfits(self) -> DataFrame:
        """The messages whose values do not fit, as the side topic gets them."""
        from pyspark.sql.functions import array, col, encode, lit, struct

        def header(name: str, value: Column) -> Column:
            return struct(lit(name).alias("key"), encode(value, "UTF-8").alias("value"))

        headers = array(
            header("reason", col("misfit")),
            header("topic", col("topic")),
            header("partition", col("partition").cast("string")),
            header("offset", col("offset").cast("string")),
        )
        found = self._judged().where("misfit IS NOT NULL")
        return found.select("key", "value", headers.alias("headers"))

    def _judged(self) -> DataFrame:
        """The messages with the columns `json`, and `misfit`: why it does not fit, or null."""
        from pyspark.sql.functions import col, from_json
        from pyspark.sql.types import StringType, StructField, StructType

        # Spark's parser makes null of a field that does not fit, and keeps the whole text aside.
        parsed = StructType([_nullable(each) for each in self._schema])
        parsed = parsed.add(StructField(_CORRUPT, StringType()))
        text = col("value").cast("string")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        judged = self._messages().withColumn("json", from_json(text, parsed, options))
        judged = judged.withColumn("misfit", self._reason(text))
        return judged.withColumn("json", col("json").dropFields(_CORRUPT))

    def _reason(self, text: Column) -> Column:
        from pyspark.sql.functions import (
            coalesce,
            col,
            concat,
            get_json_object,
            lit,
            substring,
            when,
        )

        reasons = [
            when(col("value").isNull(), lit("there is no value")),
            when(get_json_object(text, "$").isNull(), lit("the value is not JSON")),
            when(~text.rlike(r"^\s*\{"), lit("the value is not a JSON object")),
        ]
        for each in self._schema:
            field = col("json").getField(each.name)
            raw = get_json_object(text, f"$['{each.name}']")
            wrong = concat(
                lit(f"the field {each.name} is not {each.dataType.simpleString()}: "),
                substring(raw, 1, 100),
            )
            reasons.append(when(field.isNull() & raw.isNotNull(), wrong))
            reasons += _missing(field, each, each.name)
        corrupt = col("json").getField(_CORRUPT).isNotNull()
        reasons.append(when(corrupt, lit("the value does not fit the schema")))
        return coalesce(*reasons)


def _missing(field: Column, declared: StructField, name: str) -> list[Column]:
    """That a field must not be null and is, or one within it."""
    from pyspark.sql.functions import lit, when
    from pyspark.sql.types import StructType

    found = []
    if not declared.nullable:
        found.append(when(field.isNull(), lit(f"the field {name} is missing")))
    if isinstance(declared.dataType, StructType):
        for each in declared.dataType:
            within = _missing(field.getField(each.name), each, f"{name}.{each.name}")
            found += [when(field.isNotNull(), reason) for reason in within]
    return found


def json_values(
    messages: Callable[[], DataFrame],
    *,
    misfits: str,
    schema: str | None = None,
    keep: str | None = None,
    topic: str | None = None,
) -> Fitting:
    """Declare how the values of `messages` are understood, and a sink for those that do not fit.

    `misfits` names the side topic. `schema` is as in Spark's SQL (`amount double, at timestamp not
    null`). Without it the schema is inferred from the first records of `topic` and kept in the file
    `keep` (by default schemas/TOPIC.sql of the pipeline's directory); from then on the file counts.
    """
    from pyspark import pipelines as dp

    if schema is None:
        if topic is None:
            raise PipelineFault("json_values needs a schema, or the topic to infer it from")
        file = Path(keep or f"schemas/{topic}.sql")
        found = Fitting(messages, parse_schema(kept_schema(file, topic), file))
    else:
        found = Fitting(messages, parse_schema(schema))
    name = re.sub(r"\W", "_", misfits.removesuffix(".misfits")) + MISFITS
    dp.create_sink(name, "hocket", {**broker(), "topic": misfits, "includeHeaders": "true"})
    dp.append_flow(target=name, name=name)(found.misfits)
    return found


def parse_schema(text: str, file: Path | None = None) -> StructType:
    """The schema that a text of Spark's SQL describes; `file` is where the text stands, if it does.

    Raises PipelineFault if it describes none.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    # Line by line, so that Spark's line is that of the file.
    words = "\n".join(_COMMENT.sub(r"\1", line) for line in text.splitlines()).rstrip(";, \n")
    named = f"in {file}" if file else repr(" ".join(words.split()))
    if not words.strip():
        raise PipelineFault(f"the schema {named} has no field")
    try:
        found = StructType.fromDDL(words)
    except PySparkException as error:
        line = position.group(1) if file and (position := POSITION.search(str(error))) else ""
        where = f"{named}:{line}" if line else named
        raise PipelineFault(
            f"the schema {where} cannot be understood: {plain(str(error))}"
        ) from None
    if not isinstance(found, StructType):
        raise PipelineFault(f"the schema {named} has no field; it looks like `amount double`")
    return found


def kept_schema(file: Path, topic: str) -> str:
    """What the file says; if there is none yet, it is made from the topic's first records."""
    if file.exists():
        return file.read_text()
    found = inferred(_sample(topic), topic)
    lines = ",\n".join(f"{_quoted(name)} {kind}" for name, kind in found.items())
    text = f"-- The values of the topic {topic}, as its first records have them.\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}{lines}\n")
    return lines


def _sample(topic: str) -> list[bytes]:
    import hocket

    there = broker()
    token_file = there.get("tokenFile")
    with hocket.connect(
        there["servers"],
        token=Path(token_file).read_text().strip() if token_file else None,
        tls_ca=there.get("tlsCa"),
        tls_cert=there.get("tlsCert"),
        tls_key=there.get("tlsKey"),
    ) as client:
        starts, ends = client.find_offsets(topic, "earliest"), client.find_offsets(topic, "latest")
        there_are = sum(end - start for start, end in zip(starts, ends, strict=True))
        positions = dict(enumerate(starts))
        values: list[bytes] = []
        if there_are:
            with client.subscribe(topic, positions=positions) as subscription:
                while len(values) < min(SAMPLE, there_are):
                    try:
                        values.append(bytes(subscription.receive(SAMPLE_SECONDS).value))
                    except Timeout:
                        break
    return values


def inferred(values: list[bytes], topic: str = "") -> dict[str, str]:
    """Fields and their types, by Spark's names, of those values that are JSON objects."""
    fields: dict[str, str] = {}
    for value in values:
        try:
            found = json.loads(value)
        except ValueError:
            continue
        if isinstance(found, dict):
            for name, each in found.items():
                if not name:  # no column can be called so
                    continue
                fields[name] = _common(fields.get(name, ""), _kind(each))
    if not fields:
        raise PipelineFault(
            f"no schema can be inferred: none of the first {len(values)} records of the topic "
            f"{topic!r} is a JSON object. Publish some first, or give a schema"
        )
    return {name: kind or "STRING" for name, kind in fields.items()}


def _kind(value: Any) -> str:
    """The type of one value; empty: it is null, and says nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -(2**63) <= value < 2**63 else "STRING"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, list):
        kind = ""
        for each in value:
            kind = _common(kind, _kind(each))
        return f"ARRAY<{kind or 'STRING'}>"
    if isinstance(value, Mapping):
        fields = ", ".join(
            f"{_quoted(name)}: {_kind(each) or 'STRING'}" for name, each in value.items() if name
        )
        return f"STRUCT<{fields}>" if fields else "MAP<STRING, STRING>"
    return "STRING"


def _common(one: str, other: str) -> str:
    """The type that holds both; text holds everything, as Spark's parser has it."""
    if not one or not other or one == other:
        return one or other
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else "STRING"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


def _nullable(field: Any) -> Any:
    from pyspark.sql.types import StructField

    return StructField(field.name, field.dataType, nullable=True)
