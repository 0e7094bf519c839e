"""Frames to Cap'n Proto messages and back: the header of everything on the wire.

Theory: the classes of `hocket.frames` and the structs of `schema/hocket.capnp` say the same, so the
translation is a table made from the dataclasses (`wire.structs`). Frames that have numbers alone go
by a mould (`wire.flat_frames`).

Rule 1: whatever bytes come in, `decode` returns a frame or raises ProtocolError, nothing else.
Rule 2: what decoding may cost is limited by the message's own length before anything is decoded.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hocket.errors import OutOfRange, ProtocolError, WrongType
from hocket.frames import PROTOCOL_VERSION, Deliver, Frame
from hocket.wire.flat_frames import Mould, moulds
from hocket.wire.schema import hocket_capnp
from hocket.wire.structs import (
    CANNOT_ENCODE,
    MALFORMED,
    NESTING_MAX,
    NOT_A_VALUE,
    SPARE_WORDS,
    Field,
    Read,
    Structs,
    Write,
    camel,
    one_segment,
    read_fields,
    reason_of,
    segments_of,
    which,
    write_fields,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

PACKED_BYTES = {
    "leaders": 8, "offsets": 8, "sequences": 8, "partitions": 8, "positions": 16,
    "ranges": 24, "held": 24, "refused": 24, "handed": 24, "groups": 8, "places": 24,
}  # fmt: skip  # of one item
_STRUCTS = Structs(PROTOCOL_VERSION, PACKED_BYTES)


class _Kind(NamedTuple):
    frame: type[Frame]
    make: Callable[..., Frame]  # the same class, typed as a function
    fields: list[Field]  # all but `request`, which stands in the Frame itself


def encode(frame: Frame) -> bytes:
    """One message, unpacked, in one segment. OutOfRange or WrongType if a field does not fit."""
    mould = _MOULDS.get(type(frame))
    if mould is not None:
        try:
            return mould.encode(frame)
        except (struct.error, AttributeError):
            pass  # it does not fit: the library says why
    return _encode(frame)


def _encode(frame: Frame) -> bytes:
    try:
        return one_segment(partial(_build, frame))
    except CANNOT_ENCODE as exc:
        raise OutOfRange(f"{frame!r:.500} does not fit its frame: {reason_of(exc)}") from exc
    except NOT_A_VALUE as exc:
        raise WrongType(f"{frame!r:.500} does not fit its frame: {exc}") from exc


def _build(frame: Frame, first_segment_words: int | None) -> bytes:
    name, fields = _WRITERS[type(frame)]
    message = hocket_capnp.Frame.new_message(first_segment_words)
    message._set("request", frame.request)
    write_fields(fields, message.init(name), frame)
    return typing.cast(bytes, message.to_bytes())


def decode(
    buffer: Buffer, permitted: Container[type[Frame]] | None = None, situation: str = "here"
) -> Frame:
    """The frame of one message. Raises ProtocolError if there is none in it.

    With `permitted`, a frame of another kind is refused before its fields are read; the error says
    that it is not allowed in this `situation`.
    """
    view = memoryview(buffer).cast("B")
    for mould in _MOULDS_BY_LENGTH.get(len(view), ()):
        if permitted is None or mould.frame in permitted:
            frame = mould.decode(view)
            if frame is not None:
                return frame
    segments = segments_of(view)
    words = len(view) // 8
    try:
        message = hocket_capnp.Frame.from_segments(segments, words + SPARE_WORDS, NESTING_MAX)
        name = which(message)
        if name is None:
            number = hocket_capnp.FrameKind.from_segments(segments)._get("kind")
            raise ProtocolError(f"frame kind {number} is unknown to version {PROTOCOL_VERSION}")
        kind = _KINDS[name]
        if permitted is not None and kind.frame not in permitted:
            raise ProtocolError(f"{kind.frame.__name__} is not allowed {situation}")
        return kind.make(message._get("request"), *read_fields(kind.fields, message._get(name)))
    except MALFORMED as exc:
        raise ProtocolError(f"a malformed frame header: {reason_of(exc)}") from exc


def struct_codec(struct_type: type) -> tuple[Write, Read]:
    """How to write and read a struct of `hocket.capnp` inside a message of another schema.

    Reading may raise ProtocolError, and KjException where the message is malformed.
    """
    return _STRUCTS.struct(struct_type)


def _kind(frame_type: type[Frame]) -> _Kind:
    return _Kind(frame_type, frame_type, _STRUCTS.fields(frame_type))


_KINDS = {camel(kind.__name__): _kind(kind) for kind in typing.get_args(Frame)}
_WRITERS = {kind.frame: (name, kind.fields) for name, kind in _KINDS.items()}
_MOULDS = {mould.frame: mould for mould in moulds(typing.get_args(Frame), _encode)}
_MOULDS_BY_LENGTH: dict[int, list[Mould]] = {}
for _mould in sorted(_MOULDS.values(), key=lambda mould: mould.frame is not Deliver):
    _MOULDS_BY_LENGTH.setdefault(_mould.length, []).append(_mould)  # the busiest is tried first
