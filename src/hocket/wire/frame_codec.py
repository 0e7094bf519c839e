"""Frames to Cap'n Proto messages and back: the header of everything on the wire.

Theory: the classes of `hocket.frames` and the structs of `schema/hocket.capnp` have the same names
and the same fields, one in snake_case and the other in lowerCamel, so the translation is a table
made from the dataclasses. (Written out by hand for the busiest frames it was 0.5 us faster, of 3 to
5 us that each frame costs; not enough to say everything twice.)

Rule 1: whatever bytes come in, `decode` returns a frame or raises ProtocolError, nothing else.
Rule 2: what decoding may cost is limited by the message's own length before anything is decoded:
the segment table is read here, and following pointers is limited to about as many words as there
are.
"""

from __future__ import annotations

import dataclasses
import re
import struct
import types
import typing
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import capnp  # type: ignore[import-untyped]

from hocket.errors import OutOfRange, ProtocolError, WrongType
from hocket.frames import PROTOCOL_VERSION, Frame
from hocket.wire.schema import hocket_capnp

if TYPE_CHECKING:
    from typing_extensions import Buffer

SEGMENTS_MAX = 512  # as Cap'n Proto's own stream reader allows
NESTING_MAX = 8  # our frames nest 4 deep: frame, topics, partitions, names of replicas
_SPARE_WORDS = 4096  # an element of a list that has no data of its own still counts as a word

_PACKED_BYTES = {
    "offsets": 8, "sequences": 8, "partitions": 8, "positions": 16,
    "ranges": 24, "held": 24, "refused": 24, "handed": 24,
}  # fmt: skip  # of one item
_COUNT = struct.Struct("<I")

# What pycapnp raises for a message that does not fit the schema: a pointer that leads nowhere, a
# limit reached, text that is not UTF-8.
_MALFORMED = (capnp.KjException, UnicodeDecodeError)
_CANNOT_ENCODE = (capnp.KjException, OverflowError, UnicodeEncodeError)
_NOT_A_VALUE = (AttributeError, TypeError)

_Write = Callable[[Any, str, Any], object]  # (builder, field's name, value)
_Read = Callable[[Any], Any]  # what pycapnp returns for the field -> the value


class _Field(NamedTuple):
    attribute: str
    name: str
    write: _Write | None  # None: pycapnp takes the value as it is
    read: _Read | None  # None: what pycapnp returns is the value


class _Kind(NamedTuple):
    frame: type[Frame]
    make: Callable[..., Frame]  # the same class, typed as a function
    fields: list[_Field]  # all but `request`, which stands in the Frame itself


def encode(frame: Frame) -> bytes:
    """One message, unpacked, in one segment. OutOfRange or WrongType if a field does not fit."""
    try:
        header = _build(frame, None)
        if header[:4] != bytes(4):  # it did not fit into the usual first segment
            header = _build(frame, len(header) // 8)
    except _CANNOT_ENCODE as exc:
        raise OutOfRange(f"{frame!r:.500} does not fit its frame: {_reason(exc)}") from exc
    except _NOT_A_VALUE as exc:
        raise WrongType(f"{frame!r:.500} does not fit its frame: {exc}") from exc
    return header


def _build(frame: Frame, first_segment_words: int | None) -> bytes:
    name, fields = _WRITERS[type(frame)]
    message = hocket_capnp.Frame.new_message(first_segment_words)
    message._set("request", frame.request)
    _write_fields(fields, message.init(name), frame)
    return typing.cast(bytes, message.to_bytes())


def decode(
    buffer: Buffer, permitted: Container[type[Frame]] | None = None, situation: str = "here"
) -> Frame:
    """The frame of one message. Raises ProtocolError if there is none in it.

    With `permitted`, a frame of another kind is refused before its fields are read; the error says
    that it is not allowed in this `situation`.
    """
    view = memoryview(buffer).cast("B")
    segments = _segments(view)
    words = len(view) // 8
    try:
        message = hocket_capnp.Frame.from_segments(segments, words + _SPARE_WORDS, NESTING_MAX)
        name = _which(message)
        if name is None:
            number = hocket_capnp.FrameKind.from_segments(segments)._get("kind")
            raise ProtocolError(f"frame kind {number} is unknown to version {PROTOCOL_VERSION}")
        kind = _KINDS[name]
        if permitted is not None and kind.frame not in permitted:
            raise ProtocolError(f"{kind.frame.__name__} is not allowed {situation}")
        return kind.make(message._get("request"), *_read_fields(kind.fields, message._get(name)))
    except _MALFORMED as exc:
        raise ProtocolError(f"a malformed frame header: {_reason(exc)}") from exc


def struct_codec(struct_type: type) -> tuple[_Write, _Read]:
    """How to write and read a struct of `hocket.capnp` inside a message of another schema.

    Reading may raise ProtocolError, and KjException where the message is malformed.
    """
    return _struct(struct_type)


def _segments(view: memoryview) -> list[memoryview]:
    """The segments that the table at the head of the message announces; none is read yet."""
    length = len(view)
    if length < 8 or length % 8:
        raise ProtocolError(f"a frame header of {length} bytes; it must be 8 or more, in eights")
    count = _COUNT.unpack_from(view)[0] + 1
    if count > SEGMENTS_MAX:
        raise ProtocolError(f"a frame header of {count} segments; at most {SEGMENTS_MAX} may be")
    position = (4 * count + 11) & ~7  # the table itself, padded
    if position > length:
        raise ProtocolError(f"a frame header of {length} bytes ends within its segment table")
    segments = []
    for size in struct.unpack_from(f"<{count}I", view, 4):
        segments.append(view[position : position + 8 * size])
        position += 8 * size
    if position != length:
        raise ProtocolError(f"a frame header of {length} bytes; its segments take {position}")
    return segments


def _which(reader: Any) -> str | None:
    """The member of a union that is set; None if our schema does not have that member."""
    try:
        return typing.cast(str, reader._which_str())
    except capnp.KjException:  # it looks at the discriminant only: nothing else can be wrong
        return None


def _reason(exc: BaseException) -> str:
    """The error's text, without the stack addresses that Cap'n Proto adds."""
    return exc.description if isinstance(exc, capnp.KjException) else str(exc)


# --- the table, made from the dataclasses --------------------------------------------------------


def _camel(name: str) -> str:
    """`key_shared` and `KeyShared` are both `keyShared`."""
    name = re.sub(r"_(.)", lambda match: match[1].upper(), name)
    return name[0].lower() + name[1:]


def _field(attribute: str, kind: Any) -> _Field:
    return _Field(attribute, _camel(attribute), *_translation(attribute, kind))


def _translation(attribute: str, kind: Any) -> tuple[_Write | None, _Read | None]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _struct(typing.cast(type, kind))
    if origin is Literal:
        return _enum(attribute, arguments)
    if origin is types.UnionType:
        return _set_optional, _optional(attribute)
    if origin is tuple:
        return _list(attribute, arguments[0])
    if attribute in _PACKED_BYTES and kind is bytes:
        return None, _packed(attribute)
    assert kind in (int, str, bytes, bool), f"no translation for {attribute}: {kind}"
    return None, None


def _fields(struct_type: type) -> list[_Field]:
    hints = typing.get_type_hints(struct_type)
    names = [field.name for field in dataclasses.fields(struct_type)]
    return [_field(name, hints[name]) for name in names if name != "request"]


def _write_fields(fields: list[_Field], builder: Any, value: Any) -> None:
    for attribute, name, write, _ in fields:
        if write is None:
            builder._set(name, getattr(value, attribute))
        else:
            write(builder, name, getattr(value, attribute))


def _read_fields(fields: list[_Field], reader: Any) -> list[Any]:
    values = []
    for _, name, _, read in fields:
        value = reader._get(name)
        values.append(value if read is None else read(value))
    return values


def _struct(struct_type: type) -> tuple[_Write, _Read]:
    fields = _fields(struct_type)

    def write(builder: Any, name: str, value: Any) -> None:
        _write_fields(fields, builder.init(name), value)

    def read(reader: Any) -> Any:
        return struct_type(*_read_fields(fields, reader))

    return write, read


def _list(attribute: str, item: Any) -> tuple[_Write | None, _Read]:
    if not dataclasses.is_dataclass(item):
        return None, tuple
    fields = _fields(typing.cast(type, item))
    _, read_item = _translation(attribute, item)
    assert read_item is not None

    def write(builder: Any, name: str, value: Any) -> None:
        items = builder.init(name, len(value))
        for position, each in enumerate(value):
            _write_fields(fields, items[position], each)

    def read(items: Any) -> tuple[Any, ...]:
        return tuple(read_item(items._get(position)) for position in range(len(items)))

    return write, read


def _enum(attribute: str, values: tuple[str, ...]) -> tuple[_Write, _Read]:
    names = {value: _camel(value) for value in values}  # the schema has them in the same order

    def write(builder: Any, name: str, value: str) -> None:
        if value not in names:
            raise OutOfRange(f"{attribute} must be one of {', '.join(values)}, not {value!r}")
        builder._set(name, names[value])

    def read(enum: Any) -> str:
        number: int = enum.raw
        if number >= len(values):
            raise ProtocolError(
                f"{attribute} number {number} is unknown to version {PROTOCOL_VERSION}"
            )
        return values[number]

    return write, read


def _set_optional(builder: Any, name: str, value: int | None) -> None:
    builder._get(name)._set("none" if value is None else "some", value)


def _optional(attribute: str) -> _Read:
    def read(group: Any) -> int | None:
        member = _which(group)
        if member is None:
            raise ProtocolError(f"{attribute} is of a kind unknown to version {PROTOCOL_VERSION}")
        return None if member == "none" else typing.cast(int, group._get("some"))

    return read


def _packed(attribute: str) -> _Read:
    item_bytes = _PACKED_BYTES[attribute]

    def read(data: bytes) -> bytes:
        if len(data) % item_bytes:
            raise ProtocolError(
                f"{attribute} of {len(data)} bytes; it must be a multiple of {item_bytes}"
            )
        return data

    return read


def _kind(frame_type: type[Frame]) -> _Kind:
    return _Kind(frame_type, frame_type, _fields(frame_type))


_KINDS = {_camel(kind.__name__): _kind(kind) for kind in typing.get_args(Frame)}
_WRITERS = {kind.frame: (name, kind.fields) for name, kind in _KINDS.items()}
