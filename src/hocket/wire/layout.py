"""Named fields, one directly behind the other: a struct that also says where each field lies.

Every fixed part of the format, on the wire and on disk, is described by a `Layout`. The code packs
and unpacks with its `struct`. Whoever has to find a field in stored bytes asks `fields`: so do the
tests that damage every field of a store, and so they meet a new field by themselves.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class Field(NamedTuple):
    """Its bytes are [start, end) of the part that it belongs to."""

    name: str
    start: int
    end: int


class Layout:
    """`codes` are those of the module `struct`, one for each name; all numbers little-endian."""

    __slots__ = ("fields", "struct")

    def __init__(self, codes: str, names: Sequence[str]) -> None:
        self.struct = struct.Struct(f"<{codes}")
        sizes = [struct.calcsize(f"<{code}") for code in re.findall(r"\d*[a-zA-Z]", codes)]
        assert len(sizes) == len(names), f"{len(sizes)} codes for {len(names)} names: {names}"
        ends = list(accumulate(sizes))
        self.fields = tuple(map(Field, names, [0, *ends], ends))
