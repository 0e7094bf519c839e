"""Splits bytes, which come in chunks, into lines. Any delimiter will do; nothing is decoded."""

from __future__ import annotations

import click

ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\0": "\0"}


class LineSplitter:
    """Takes chunks and gives whole lines. Between two calls it holds less than one line."""

    def __init__(self, delimiter: bytes = b"\n") -> None:
        self._delimiter = delimiter
        self._rest: list[bytes] = []  # joined once, when the line is whole: long lines stay cheap
        self.rest_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        if not self._ends_a_line(chunk):
            self._rest.append(chunk)
            self.rest_bytes += len(chunk)
            return []
        lines = b"".join((*self._rest, chunk)).split(self._delimiter)
        rest = lines.pop()
        self._rest = [rest] if rest else []
        self.rest_bytes = len(rest)
        return lines

    def _ends_a_line(self, chunk: bytes) -> bool:
        overlap = len(self._delimiter) - 1  # the delimiter itself may have come in two chunks
        if overlap:
            chunk = b"".join(self._rest[-overlap:])[-overlap:] + chunk
        return self._delimiter in chunk

    def end(self) -> list[bytes]:
        """The last line, if anything followed the last delimiter."""
        last = b"".join(self._rest)
        self._rest, self.rest_bytes = [], 0
        return [last] if last else []


def split_keys(lines: list[bytes], separator: bytes) -> tuple[list[bytes], list[bytes]]:
    """The keys and the values of the lines, up to the first line without a separator."""
    parts = [line.partition(separator) for line in lines]
    if not all(found for _, found, _ in parts):
        parts = parts[: next(at for at, (_, found, _) in enumerate(parts) if not found)]
    return [key for key, _, _ in parts], [value for _, _, value in parts]


def unescape(_context: click.Context, option: click.Parameter, text: str | None) -> bytes | None:
    """Read a delimiter as it is typed: '\\n', '\\t' and '\\0' stand for what they name."""
    if text is None:
        return None
    for escape, meant in ESCAPES.items():
        text = text.replace(escape, meant)
    if not text:
        raise click.BadParameter("it must not be empty", param=option)
    return text.encode(errors="surrogateescape")
