"""How `hocket consume --format` shows a message: text with fields in braces, as Python writes them.

A template is made of literal text and of fields: `{key} {partition}/{offset}: {value}`. It is read
once, before anything is done, and then it is applied to every message. Values and keys are printed
byte by byte, whatever they are; nothing is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from string import Formatter
from typing import TYPE_CHECKING

import click

from hocket.cli.lines import ESCAPES
from hocket.cli.output import moment, text_or_base64

if TYPE_CHECKING:
    from hocket.client_core.consuming.message import Message

Part = Callable[["Message"], bytes]

_ONE_HEADER = re.compile(r"headers\[([^\[\]]+)\]\Z")


def _headers(message: Message) -> bytes:
    named = {name: text_or_base64(data) for name, data in message.headers.items()}
    return json.dumps(named, ensure_ascii=False).encode()


FIELDS: dict[str, Part] = {
    "topic": lambda message: message.topic.encode(),
    "partition": lambda message: b"%d" % message.partition,
    "offset": lambda message: b"%d" % message.offset,
    "time": lambda message: moment(message.timestamp).encode(),
    "key": lambda message: message.key or b"",
    "value": lambda message: message.value,
    "headers": _headers,
    "delivery_count": lambda message: b"%d" % message.delivery_count,
}


class Template:
    """The template `text`; a message becomes a line by it. Raises ValueError if it is not one."""

    def __init__(self, text: str) -> None:
        for escape, meant in ESCAPES.items():
            text = text.replace(escape, meant)
        if not text:
            raise ValueError("it must not be empty")
        self._parts: list[bytes | Part] = []
        for literal, field, how, conversion in Formatter().parse(text):
            if literal:
                self._parts.append(literal.encode(errors="surrogateescape"))
            if field is None:
                continue
            if how or conversion:
                raise ValueError(f"'{{{field}}}' takes nothing behind the name of the field")
            self._parts.append(_field(field))

    def line(self, message: Message) -> bytes:
        parts = [part if isinstance(part, bytes) else part(message) for part in self._parts]
        return b"".join(parts) + b"\n"


def _field(name: str) -> Part:
    found = FIELDS.get(name)
    if found is not None:
        return found
    header = _ONE_HEADER.match(name)
    if header is None:
        known = ", ".join(f"{{{each}}}" for each in FIELDS)
        raise ValueError(
            f"there is no field '{{{name}}}'; there are {known} and {{headers[NAME]}}; for a brace "
            "itself write {{ or }}"
        )
    wanted = header[1]
    return lambda message: message.headers.get(wanted) or b""


def read_template(
    _context: click.Context, option: click.Parameter, text: str | None
) -> Template | None:
    if text is None:
        return None
    try:
        return Template(text)
    except ValueError as error:  # ours, or Python's about braces that do not match
        raise click.BadParameter(str(error), param=option) from error
