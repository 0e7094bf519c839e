"""Bytes into lines, in pieces as they come, whatever the delimiter; nothing is decoded."""

from __future__ import annotations

import click

_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\0": "\0"}


class LineSplitter:
    """Fed with chunks, it gives whole lines. Between two calls it holds less than one line."""

    def __init__(self, delimiter: bytes = b"\n") -> None:
        self._delimiter = delimiter
        self._rest: list[bytes] = []  # joined only when the line is whole, so a long one is cheap
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
        """What followed the last delimiter, if anything did, is a line too."""
        last = b"".join(self._rest)
        self._rest, self.rest_bytes = [], 0
        return [last] if last else []


def split_keys(lines: list[bytes], separator: bytes) -> tuple[list[bytes], list[bytes]]:
    """(keys, values) of the lines, up to the first that has no separator."""
    parts = [line.partition(separator) for line in lines]
    if not all(found for _, found, _ in parts):
        parts = parts[: next(at for at, (_, found, _) in enumerate(parts) if not found)]
    return [key for key, _, _ in parts], [value for _, _, value in parts]


def unescape(_context: click.Context, option: click.Parameter, text: str | None) -> bytes | None:
    """A delimiter as it is typed: '\\n', '\\t' and '\\0' stand for what they name."""
    if text is None:
        return None
    for escape, meant in _ESCAPES.items():
        text = text.replace(escape, meant)
    if not text:
        raise click.BadParameter("it must not be empty", param=option)
    return text.encode(errors="surrogateescape")
