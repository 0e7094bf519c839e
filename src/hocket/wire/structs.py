"""Dataclasses and named tuples to Cap'n Proto structs and back, by a table made from the classes.

Theory: a class and its struct in the schema have the same name and the same fields, one in
snake_case and the other in lowerCamel. So the translation is made from the classes' annotations,
once, when a codec is made. Both codecs stand on it: that of clients' frames (`frame_codec`) and
that of messages between nodes (`node_codec`).

Rule: what reading may cost is limited by the message's own length before anything is read. The
segment table is read here, and following pointers is limited to about as many words as there are.
"""

from __future__ import annotations

import dataclasses
import re
import struct
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import capnp  # type: ignore[import-untyped]

from hocket.errors import OutOfRange, ProtocolError

SEGMENTS_MAX = 512  # as Cap'n Proto's own stream reader allows
NESTING_MAX = 8  # our frames nest 4 deep: frame, topics, partitions, names of replicas
SPARE_WORDS = 4096  # an element of a list that has no data of its own still counts as a word
_COUNT = struct.Struct("<I")

# What pycapnp raises for a message that does not fit the schema: a pointer that leads nowhere, a
# limit reached, text that is not UTF-8.
MALFORMED = (capnp.KjException, UnicodeDecodeError)
CANNOT_ENCODE = (capnp.KjException, OverflowError, UnicodeEncodeError)
NOT_A_VALUE = (AttributeError, TypeError)

Write = Callable[[Any, str, Any], object]  # (builder, field's name, value)
Read = Callable[[Any], Any]  # what pycapnp returns for the field -> the value


class Field(NamedTuple):
    attribute: str
    name: str
    write: Write | None  # None: pycapnp takes the value as it is
    read: Read | None  # None: what pycapnp returns is the value


def one_segment(build: Callable[[int | None], bytes]) -> bytes:
    """The message that `build` makes, in one segment.

    `build` is given the size of the first segment, in words; None: the usual size.
    """
    message = build(None)
    if message[:4] != bytes(4):  # it did not fit into the usual first segment
        message = build(len(message) // 8)
    return message


def segments_of(view: memoryview) -> list[memoryview]:
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


def which(reader: Any) -> str | None:
    """The member of a union that is set; None if our schema does not have that member."""
    try:
        return typing.cast(str, reader._which_str())
    except capnp.KjException:  # it looks at the discriminant only: nothing else can be wrong
        return None


def reason_of(exc: BaseException) -> str:
    """The error's text, without the stack addresses that Cap'n Proto adds."""
    return exc.description if isinstance(exc, capnp.KjException) else str(exc)


def camel(name: str) -> str:
    """`key_shared` and `KeyShared` are both `keyShared`."""
    name = re.sub(r"_(.)", lambda match: match[1].upper(), name)
    return name[0].lower() + name[1:]


def is_struct(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")


def names_of(struct_type: type) -> tuple[str, ...]:
    """The fields of a dataclass or a named tuple, in order."""
    if dataclasses.is_dataclass(struct_type):
        return tuple(field.name for field in dataclasses.fields(struct_type))
    return typing.cast(tuple[str, ...], vars(struct_type)["_fields"])


def write_fields(fields: list[Field], builder: Any, value: Any) -> None:
    for attribute, name, write, _ in fields:
        if write is None:
            builder._set(name, getattr(value, attribute))
        else:
            write(builder, name, getattr(value, attribute))


def read_fields(fields: list[Field], reader: Any) -> list[Any]:
    values = []
    for _, name, _, read in fields:
        value = reader._get(name)
        values.append(value if read is None else read(value))
    return values


class Structs:
    """Makes the table for the classes of one schema.

    `packed_bytes` says, for `bytes` that are packed numbers, how many bytes one item has.
    """

    def __init__(self, version: int, packed_bytes: Mapping[str, int] | None = None) -> None:
        self._version = version
        self._packed_bytes = packed_bytes or {}

    def fields(self, struct_type: type) -> list[Field]:
        """All but `request`, which stands in the frame itself."""
        hints = typing.get_type_hints(struct_type)
        names = [name for name in names_of(struct_type) if name != "request"]
        return [Field(name, camel(name), *self.translation(name, hints[name])) for name in names]

    def translation(self, attribute: str, kind: Any) -> tuple[Write | None, Read | None]:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if is_struct(kind):
            return self.struct(kind)
        if origin is Literal:
            return self._enum(attribute, arguments)
        if origin is types.UnionType:
            return self._optional(attribute, arguments[0])
        if origin is tuple:
            return self.list(attribute, arguments[0])
        if attribute in self._packed_bytes and kind is bytes:
            return None, self._packed(attribute)
        assert kind in (int, str, bytes, bool), f"no translation for {attribute}: {kind}"
        return None, None

    def struct(self, struct_type: type) -> tuple[Write, Read]:
        fields = self.fields(struct_type)

        def write(builder: Any, name: str, value: Any) -> None:
            write_fields(fields, builder.init(name), value)

        def read(reader: Any) -> Any:
            return struct_type(*read_fields(fields, reader))

        return write, read

    def list(self, attribute: str, item: Any) -> tuple[Write | None, Read]:
        if not is_struct(item):
            return None, tuple
        fields = self.fields(item)
        _, read_item = self.translation(attribute, item)
        assert read_item is not None

        def write(builder: Any, name: str, value: Any) -> None:
            items = builder.init(name, len(value))
            for position, each in enumerate(value):
                write_fields(fields, items[position], each)

        def read(items: Any) -> tuple[Any, ...]:
            return tuple(read_item(items._get(position)) for position in range(len(items)))

        return write, read

    def _enum(self, attribute: str, values: tuple[str, ...]) -> tuple[Write, Read]:
        names = {value: camel(value) for value in values}  # the schema has them in the same order

        def write(builder: Any, name: str, value: str) -> None:
            if value not in names:
                raise OutOfRange(f"{attribute} must be one of {', '.join(values)}, not {value!r}")
            builder._set(name, names[value])

        def read(enum: Any) -> str:
            number: int = enum.raw
            if number >= len(values):
                raise ProtocolError(
                    f"{attribute} number {number} is unknown to version {self._version}"
                )
            return values[number]

        return write, read

    def _optional(self, attribute: str, kind: Any) -> tuple[Write, Read]:
        write_some, read_some = self.translation(attribute, kind)

        def write(builder: Any, name: str, value: Any) -> None:
            group = builder._get(name)
            if value is None or write_some is None:
                group._set("none" if value is None else "some", value)
            else:
                write_some(group, "some", value)

        def read(group: Any) -> Any:
            member = which(group)
            if member is None:
                raise ProtocolError(f"{attribute} is of a kind unknown to version {self._version}")
            if member == "none":
                return None
            value = group._get("some")
            return value if read_some is None else read_some(value)

        return write, read

    def _packed(self, attribute: str) -> Read:
        item_bytes = self._packed_bytes[attribute]

        def read(data: bytes) -> bytes:
            if len(data) % item_bytes:
                raise ProtocolError(
                    f"{attribute} of {len(data)} bytes; it must be a multiple of {item_bytes}"
                )
            return data

        return read
