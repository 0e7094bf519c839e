"""Any message between nodes, for hypothesis: every kind, every field, to the ends of its range.

Made from the classes and from the schema's own types, so that a new message is covered the moment
it is there.
"""

from __future__ import annotations

import types
import typing
from typing import Any

from hypothesis import strategies as st

from hocket.core.relay.messages import Piece
from hocket.node.messages import CODEC
from hocket.wire.node_codec import _NUMBERS_MAX, _PIECE, _TEXTS_MAX, TEXT_MAX
from hocket.wire.node_schema import node_capnp
from hocket.wire.structs import camel, is_struct, names_of
from tests.support.wire.frame_strategies import _INTEGERS, _integers, _type_of

lives = _integers("uint64")


@st.composite
def pieces(draw: st.DrawFn, kind: type = Piece) -> tuple[Any, ...]:
    made = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, 2**64 - 2))
        end = draw(st.integers(start + 1, 2**64 - 1))
        made.append(kind(start, end, draw(st.binary(max_size=40))))
    return tuple(made)


def messages_of(kind: type) -> st.SearchStrategy[Any]:
    has_request = "request" in names_of(kind)
    return _structs(kind, **({"request": _integers("uint64")} if has_request else {}))


def messages() -> st.SearchStrategy[Any]:
    return st.one_of([messages_of(kind) for kind in CODEC.classes])


def _structs(kind: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schema = getattr(node_capnp, kind.__name__).schema
    hints = typing.get_type_hints(kind)
    names = [name for name in names_of(kind) if name not in known]
    fields = {name: _values(name, hints[name], schema.fields[camel(name)]) for name in names}
    return st.builds(kind, **known, **fields)


def _values(name: str, hint: Any, field: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if is_struct(hint):
        return _structs(hint)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is types.UnionType:
        return st.none() | _structs(arguments[0])
    if origin is tuple:
        if is_struct(arguments[0]) and names_of(arguments[0]) == _PIECE:
            return pieces(arguments[0])
        plain = {str: st.text(max_size=20), int: st.integers(0, 2**64 - 1)}
        items = plain[arguments[0]] if arguments[0] in plain else _structs(arguments[0])
        return st.lists(items, max_size=3).map(tuple)
    if hint is int:
        width = _type_of(field)
        if name in _NUMBERS_MAX:
            return st.integers(_INTEGERS[width][0], _NUMBERS_MAX[name])
        return _integers(width)
    if hint is str:
        most = _TEXTS_MAX.get(name, TEXT_MAX)
        return st.text(max_size=40) | st.just("é" * most)
    if hint is bytes:
        return st.binary(max_size=40)
    assert hint is bool, f"no strategy for {name}: {hint}"
    return st.booleans()
