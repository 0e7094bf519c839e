"""Any frame at all, for hypothesis: every kind, every field, to the ends of its range.

Made from the dataclasses and from the schema's own types, so that a new frame is covered the moment
it is there.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal

from hypothesis import strategies as st

from hocket.frames import Frame
from hocket.wire.frame_codec import PACKED_BYTES
from hocket.wire.schema import hocket_capnp
from hocket.wire.structs import camel

KINDS: tuple[type[Frame], ...] = typing.get_args(Frame)

_INTEGERS = {
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def frames_of(kind: type[Frame]) -> st.SearchStrategy[Frame]:
    return _structs(kind, request=_integers("uint64"))


def frames(kinds: typing.Iterable[type[Frame]] = KINDS) -> st.SearchStrategy[Frame]:
    return st.one_of([frames_of(kind) for kind in sorted(kinds, key=KINDS.index)])


def _integers(width: str) -> st.SearchStrategy[int]:
    low, high = _INTEGERS[width]
    return st.integers(low, high) | st.sampled_from([low, high])


def _structs(kind: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schema = getattr(hocket_capnp, kind.__name__).schema
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.name not in known]
    fields = {name: _values(name, hints[name], schema.fields[camel(name)]) for name in names}
    return st.builds(kind, **known, **fields)


def _values(name: str, hint: Any, field: Any) -> st.SearchStrategy[Any]:
    arguments = typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _structs(typing.cast(type, hint))
    if typing.get_origin(hint) is Literal:
        return st.sampled_from(arguments)
    if typing.get_origin(hint) is types.UnionType:
        return st.none() | _integers(_type_of(field.schema.fields["some"]))
    if typing.get_origin(hint) is tuple:
        item: Any = arguments[0]
        items: st.SearchStrategy[Any] = (
            _structs(typing.cast(type, item))
            if dataclasses.is_dataclass(item)
            else {
                str: st.text(max_size=20),
                bytes: st.binary(max_size=20),
                int: _integers("uint64"),
            }[item]
        )
        return st.lists(items, max_size=3).map(tuple)
    if hint is bytes:
        item_bytes = PACKED_BYTES.get(name, 1)
        return st.lists(st.binary(min_size=item_bytes, max_size=item_bytes), max_size=4).map(
            b"".join
        )
    if hint is int:
        return _integers(_type_of(field))
    return {str: st.text(max_size=40), bool: st.booleans()}[hint]


def _type_of(field: Any) -> str:
    return str(field.proto.slot.type.which())
