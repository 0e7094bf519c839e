"""Messages between nodes to Cap'n Proto and back: the header of every frame on a link.

The classes of the messages belong to the cores, which know no bytes and which this room does not
know; so a codec is made of the classes that it is to know (`node.messages` makes the one that
there is). Each has a struct of its own name in `schema/node.capnp`.

Rule 1: whatever bytes come in, `decode` returns a message or raises ProtocolError, nothing else.
Rule 2: what decoding may cost is limited by the message's own length before anything is decoded,
and what a message may put into the memory of its receiver by the bounds below.
Rule 3: batches are not in the header. A named tuple with `start`, `end` and `data` in a list is a
piece of the payload: the header has its size, and the bytes travel beside the header as they are.
They are copied once, by the receiver, which keeps them longer than the memory they arrived in.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hocket.errors import OutOfRange, ProtocolError, WrongType
from hocket.model import NAME_BYTES_MAX, PARTITIONS_MAX
from hocket.node_frames import NODE_PROTOCOL_VERSION, LinkFrame
from hocket.wire.node_schema import node_capnp
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
    is_struct,
    names_of,
    one_segment,
    read_fields,
    reason_of,
    segments_of,
    which,
    write_fields,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

LINK_FRAMES: tuple[type, ...] = typing.get_args(LinkFrame)

# Bounds of what a node takes from another; `encode` keeps them, too.
TEXT_MAX = NAME_BYTES_MAX  # characters of a name, an address, an id
REASON_MAX = 10_000  # characters of a text for people; as many as a client is told of an error
ITEMS_MAX = 1024  # contacts in a list; a node knows some dozens
PIECES_MAX = 16_384  # batches in one payload

_TEXTS_MAX = {  # by field, where it is not TEXT_MAX
    "text": REASON_MAX, "problem": REASON_MAX,
    "transaction": 2 * NAME_BYTES_MAX + 1,  # the user, a slash, and the id
}  # fmt: skip
_NUMBERS_MAX = {"partition": PARTITIONS_MAX - 1}
_PIECE = ("start", "end", "data")
_PACKED_PIECE = struct.Struct("<QQQ")  # start, end, how many bytes


class Envelope(NamedTuple):
    """A message, with the life that it comes from and the one that it is meant for."""

    message: Any
    from_incarnation: int = 0
    to_incarnation: int = 0  # 0: whichever is there


class _Kind(NamedTuple):
    message: Callable[..., Any]
    fields: list[Field]  # all but `request`, which stands in the NodeFrame itself
    has_request: bool


class NodeCodec:
    """Encodes and decodes messages of these classes, and the frames of the link itself."""

    def __init__(self, messages: Sequence[type]) -> None:
        structs = _Bounded(NODE_PROTOCOL_VERSION)
        self.classes: tuple[type, ...] = (*LINK_FRAMES, *messages)
        self._kinds = {
            camel(kind.__name__): _Kind(kind, structs.fields(kind), "request" in names_of(kind))
            for kind in self.classes
        }
        self._names = {kind.message: name for name, kind in self._kinds.items()}
        # By class: which field has the pieces of the payload.
        self._bulk = {kind: field for kind in self.classes if (field := _bulk_field(kind))}
        # Those whose pieces are kept by who receives them: as bytes of their own, for as long as
        # a slice is referenced all that has come with it stays in memory.
        self._kept = {kind for kind, field in self._bulk.items() if _is_kept(kind, field)}

    @property
    def with_payload(self) -> Container[type]:
        """The classes of messages that may have a payload."""
        return self._bulk

    def encode(
        self, message: Any, from_incarnation: int = 0, to_incarnation: int = 0
    ) -> tuple[bytes, list[bytes | memoryview]]:
        """The header, in one segment, and the buffers of the payload, which are not copied.

        Raises OutOfRange or WrongType if a field does not fit.
        """
        try:
            header = one_segment(partial(self._build, message, from_incarnation, to_incarnation))
        except CANNOT_ENCODE as exc:
            raise OutOfRange(f"{message!r:.500} does not fit its frame: {reason_of(exc)}") from exc
        except NOT_A_VALUE as exc:
            raise WrongType(f"{message!r:.500} does not fit its frame: {exc}") from exc
        field = self._bulk.get(type(message))
        return header, [] if field is None else [each.data for each in getattr(message, field)]

    def _build(
        self, message: Any, from_incarnation: int, to_incarnation: int, words: int | None
    ) -> bytes:
        name = self._names.get(type(message))
        if name is None:
            raise WrongType(f"no node understands a {type(message).__name__}: {message!r:.500}")
        kind = self._kinds[name]
        frame = node_capnp.NodeFrame.new_message(words)
        if kind.has_request:
            frame._set("request", message.request)
        frame._set("fromIncarnation", from_incarnation)
        frame._set("toIncarnation", to_incarnation)
        write_fields(kind.fields, frame.init(name), message)
        return typing.cast(bytes, frame.to_bytes())

    def decode(self, header: Buffer, payload: Buffer = b"") -> Envelope:
        """The message of a frame. Raises ProtocolError if there is none in it."""
        envelope = self.decode_header(header)
        expected, length = self.payload_bytes(envelope.message), memoryview(payload).nbytes
        if expected != length:
            raise _wrong_payload(envelope.message, expected, length)
        return self.fill(envelope, payload)

    # For a stream, where the header comes first and the payload when it has arrived.

    def decode_header(
        self, header: Buffer, permitted: Container[type] | None = None, situation: str = "here"
    ) -> Envelope:
        """The message without its payload: not to be used before `fill`.

        With `permitted`, a message of another kind is refused before its fields are read; the
        error says that it is not allowed in this `situation`.
        """
        view = memoryview(header).cast("B")
        segments = segments_of(view)
        words = len(view) // 8 + SPARE_WORDS
        try:
            frame = node_capnp.NodeFrame.from_segments(segments, words, NESTING_MAX)
            name = which(frame)
            kind = self._kinds.get(name or "")
            if kind is None:
                number = node_capnp.NodeFrameKind.from_segments(segments)._get("kind")
                raise ProtocolError(
                    f"node frame kind {number} is unknown to version {NODE_PROTOCOL_VERSION}"
                )
            if permitted is not None and kind.message not in permitted:
                raise ProtocolError(f"{name} is not allowed {situation}")
            values = read_fields(kind.fields, frame._get(name))
            if kind.has_request:
                values.insert(0, frame._get("request"))
            lives = frame._get("fromIncarnation"), frame._get("toIncarnation")
        except MALFORMED as exc:
            raise ProtocolError(f"a malformed frame header: {reason_of(exc)}") from exc
        return Envelope(kind.message(*values), *lives)

    def payload_bytes(self, message: Any) -> int:
        """How many bytes of payload the header of this message announces."""
        field = self._bulk.get(type(message))
        return 0 if field is None else sum(size for _, _, size in getattr(message, field))

    def fill(self, envelope: Envelope, payload: Buffer) -> Envelope:
        """The message with its payload, which has as many bytes as the header has announced."""
        message = envelope.message
        field = self._bulk.get(type(message))
        if field is not None:
            view = memoryview(payload).cast("B")
            is_kept = type(message) in self._kept
            position = 0
            pieces = []
            for piece in getattr(message, field):
                start, end, size = piece
                data = view[position : position + size]
                pieces.append(type(piece)(start, end, bytes(data) if is_kept else data))
                position += size
            setattr(message, field, tuple(pieces))
        return envelope


def _wrong_payload(message: Any, expected: int, length: int) -> ProtocolError:
    return ProtocolError(
        f"{type(message).__name__} has a payload of {length} bytes; its header says {expected}"
    )


def _bulk_field(message: type) -> str:
    """The field with the pieces of the payload; empty if there is none."""
    hints = typing.get_type_hints(message)
    fields = [name for name, hint in hints.items() if _is_bulk(hint)]
    assert len(fields) <= 1, f"{message.__name__} has more than one payload: {fields}"
    return fields[0] if fields else ""


def _is_kept(message: type, field: str) -> bool:
    """A piece that may be a memoryview as well is looked at, and not kept."""
    piece = typing.get_args(typing.get_type_hints(message)[field])[0]
    return typing.get_type_hints(piece)["data"] is bytes


def _is_bulk(hint: Any) -> bool:
    if typing.get_origin(hint) is not tuple:
        return False
    item = typing.get_args(hint)[0]
    return is_struct(item) and names_of(item) == _PIECE


class _Bounded(Structs):
    """The table for messages between nodes: with bounds for texts, numbers and lists."""

    def translation(self, attribute: str, kind: Any) -> tuple[Write | None, Read | None]:
        if kind is str:
            return _bounded_text(attribute, _TEXTS_MAX.get(attribute, TEXT_MAX))
        if kind is int and attribute in _NUMBERS_MAX:
            return _bounded_number(attribute, _NUMBERS_MAX[attribute])
        return super().translation(attribute, kind)

    def list(self, attribute: str, item: Any) -> tuple[Write, Read]:
        if is_struct(item) and names_of(item) == _PIECE:
            return _pieces(attribute, item)
        write_items, read_items = super().list(attribute, item)
        texts_max = TEXT_MAX if item is str else None

        def write(builder: Any, name: str, value: Any) -> None:
            _check(attribute, len(value), ITEMS_MAX, "items", OutOfRange)
            if write_items is None:
                if item is str:
                    for each in value:
                        _check(attribute, len(each), TEXT_MAX, "characters in one", OutOfRange)
                builder._set(name, value)
            else:
                write_items(builder, name, value)

        def read(items: Any) -> tuple[Any, ...]:
            _check(attribute, len(items), ITEMS_MAX, "items", ProtocolError)
            values: tuple[Any, ...] = read_items(items)
            if texts_max is not None:
                for each in values:
                    _check(attribute, len(each), texts_max, "characters in one", ProtocolError)
            return values

        return write, read


def _check(attribute: str, size: int, most: int, unit: str, error: type[Exception]) -> None:
    if size > most:
        raise error(f"{attribute} has {size} {unit}; at most {most} may be")


def _bounded_text(attribute: str, most: int) -> tuple[Write, Read]:
    def write(builder: Any, name: str, value: str) -> None:
        if len(value) > most:
            _check(attribute, len(value), most, "characters", OutOfRange)
        builder._set(name, value)

    def read(value: str) -> str:
        if len(value) > most:
            _check(attribute, len(value), most, "characters", ProtocolError)
        return value

    return write, read


def _bounded_number(attribute: str, most: int) -> tuple[Write, Read]:
    def write(builder: Any, name: str, value: int) -> None:
        if value > most:
            raise OutOfRange(f"{attribute} is {value}; at most {most} may be")
        builder._set(name, value)

    def read(value: int) -> int:
        if value > most:
            raise ProtocolError(f"{attribute} is {value}; at most {most} may be")
        return value

    return write, read


def _pieces(attribute: str, item: Any) -> tuple[Write, Read]:
    def write(builder: Any, name: str, value: Any) -> None:
        _check(attribute, len(value), PIECES_MAX, "items", OutOfRange)
        packed = bytearray()
        try:
            for start, end, data in value:
                _check_piece(start, end, OutOfRange)
                packed += _PACKED_PIECE.pack(start, end, len(data))
        except struct.error as exc:
            raise OutOfRange(f"{attribute} does not fit its frame: {exc}") from exc
        builder._set(name, bytes(packed))

    def read(packed: bytes) -> tuple[Any, ...]:
        if len(packed) % _PACKED_PIECE.size:
            raise ProtocolError(
                f"{attribute} of {len(packed)} bytes; it must be a multiple of {_PACKED_PIECE.size}"
            )
        _check(attribute, len(packed) // _PACKED_PIECE.size, PIECES_MAX, "items", ProtocolError)
        pieces = []
        for start, end, size in _PACKED_PIECE.iter_unpack(packed):
            _check_piece(start, end, ProtocolError)
            pieces.append(item(start, end, size))  # the size stands in for the bytes until `fill`
        return tuple(pieces)

    return write, read


def _check_piece(start: int, end: int, error: type[Exception]) -> None:
    if start >= end:
        raise error(f"a batch from offset {start} to {end} has no records")
