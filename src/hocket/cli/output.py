"""What commands print: aligned tables for people, JSON for programs, sizes and times for both."""

from __future__ import annotations

import base64
import json
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hocket.client_core.consuming.message import Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def size(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1023.95 or unit == "TiB":  # "1024.0 KiB" is shown as "1.0 MiB"
            break
    return f"{amount:.1f} {unit}"


def number(count: int) -> str:
    """1234567 -> '1,234,567'."""
    return f"{count:,}"


def messages(count: int) -> str:
    return f"{number(count)} message{'' if count == 1 else 's'}"


def lost(count: int) -> str:
    """What retention took from an index before the index had consumed it."""
    them = ("was", "it was") if count == 1 else ("were", "they were")
    return f"{messages(count)} {them[0]} removed before {them[1]} consumed"


def rate(count: float) -> str:
    """A rate per second: '1.2 M', '87.5 k', '12'."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f}"


def seconds(duration: float) -> str:
    return f"{duration:.1f} s" if duration >= 1 else f"{duration * 1000:.0f} ms"


def milliseconds(duration: float) -> str:
    """For what takes less than one, too: '0.31 ms'."""
    return f"{duration * 1000:.2f} ms" if duration < 0.01 else seconds(duration)


@lru_cache(maxsize=1024)  # most messages of a batch have the same timestamp
def moment(timestamp_us: int) -> str:
    """ISO 8601, UTC, to the microsecond; beyond the years Python knows, the bare number."""
    try:
        time = _EPOCH + timedelta(microseconds=timestamp_us)
    except OverflowError:
        return str(timestamp_us)
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def table(columns: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Aligned columns under their names; a name that ends in '>' puts its column to the right."""
    right = [name.endswith(">") for name in columns]
    lines = _cells(columns, rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _cells(columns: Sequence[str], rows: Iterable[Sequence[str | int]]) -> list[list[str]]:
    cells = [[number(cell) if isinstance(cell, int) else cell for cell in row] for row in rows]
    return [[name.removesuffix(">") for name in columns], *cells]


WIDTH = 80  # columns, where nobody says how wide the terminal is


def width() -> int:
    """How many columns there are to print on."""
    return max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def blocks(
    columns: Sequence[str], rows: Sequence[Sequence[str | int]], columns_max: int = WIDTH
) -> str:
    """A table that is not wider than this: what does not fit stands below, as a table of its own.

    Each of them begins with the first column, which says what a row is about.
    """
    widths = [max(map(len, each)) for each in zip(*_cells(columns, rows), strict=True)]
    parts = [[0]]
    taken = widths[0]
    for at in range(1, len(columns)):
        if len(parts[-1]) > 1 and taken + 2 + widths[at] > columns_max:
            parts.append([0])
            taken = widths[0]
        parts[-1].append(at)
        taken += 2 + widths[at]
    return "\n\n".join(
        table([columns[at] for at in part], [[row[at] for at in part] for row in rows])
        for part in parts
    )


def folded(items: Iterable[str], columns_max: int) -> list[str]:
    """The items with commas between them, in lines that are not longer than this if they can be."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 1 + len(item) <= columns_max:
            lines[-1] += f",{item}"
        else:
            lines.append(item)
    return lines


def wrapped(text: str, columns_max: int = WIDTH, indent: int = 0) -> str:
    """The text in lines of at most this length; lines but the first are indented."""
    return "\n".join(textwrap.wrap(text, columns_max, subsequent_indent=" " * indent))


_to_line = json.JSONEncoder(ensure_ascii=False).encode
_to_lines = json.JSONEncoder(ensure_ascii=False, indent=2).encode


def print_json(value: Any) -> None:
    """Print a list over several lines, and one object as one line."""
    click.echo(_to_lines(value) if isinstance(value, list) else _to_line(value))


def text_or_base64(data: bytes | None) -> Any:
    """The text if the bytes are UTF-8; else an object with them in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def message_json(message: Message, *, counted: bool = False) -> bytes:
    """The message as one line; `counted` adds how often it was delivered."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": moment(message.timestamp),
        "key": text_or_base64(message.key),
        "value": text_or_base64(message.value),
        "headers": {name: text_or_base64(data) for name, data in message.headers.items()},
    }
    if counted:
        fields["delivery_count"] = message.delivery_count
    return _to_line(fields).encode() + b"\n"
