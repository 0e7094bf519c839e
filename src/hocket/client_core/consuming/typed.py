"""Messages and batches of a subscription that was opened with `value=`.

Values are decoded when they are asked for, and so the one who asks is told what is wrong with them:
that one has the message at hand, can acknowledge or reject it, and goes on with the next. A message
without a type knows nothing of all this, and costs what it always did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.errors import Undecodable, WrongKind
from hocket.values import Coder

K = TypeVar("K", bound=Any)

if TYPE_CHECKING:
    _Batch = MessageBatch[Any]
else:
    _Batch = object  # it stands before a class of batches


class Decoding:
    """Makes the classes of a subscription's messages and batches, which know its coder."""

    def __init__(self, coder: Coder[Any]) -> None:
        self._coder = coder
        self._made: dict[type, Any] = {}  # a subscription to several topics asks for each of them

    def messages(self, kind: type[K]) -> type[K]:
        return self._typed(kind, {"value": _Value(self._coder)})

    def batches(self, kind: type[K]) -> type[K]:
        return self._typed(kind, {"__slots__": ()}, _TypedBatch)

    def _typed(self, kind: type[K], names: dict[str, Any], *before: type) -> type[K]:
        if kind not in self._made:
            self._made[kind] = type(kind.__name__, (*before, kind), names)
        found: type[K] = self._made[kind]
        return found


class _Value:
    """`message.value`: decoded when it is first asked for, and kept in the message from then on."""

    def __init__(self, coder: Coder[Any]) -> None:
        self._decode = coder.decode

    def __get__(self, message: Message[Any] | None, _kind: type) -> Any:
        if message is None:
            return self
        try:
            value = self._decode(message.raw)
        except Exception as error:
            raise _undecodable(message, error) from error
        message.__dict__["value"] = value
        return value


class _TypedBatch(_Batch):
    __slots__ = ()

    def values(self) -> list[Any]:
        return [message.value for message in self.messages()]

    def sift(self) -> tuple[list[Message[Any]], list[Undecodable]]:
        good, bad = [], []
        for message in self.messages():
            try:
                _ = message.value
            except Undecodable as error:
                bad.append(error)
            else:
                good.append(message)
        return good, bad

    def to_arrow(self, *_options: Any, **_more: Any) -> Any:
        raise WrongKind(
            "a subscription with value= gives values one by one, and Arrow columns hold bytes: "
            "subscribe without value= to read columns"
        )

    to_pandas = to_arrow


def _undecodable(message: Message[Any], error: Exception) -> Undecodable:
    reason = str(error) or type(error).__name__
    return Undecodable(
        f"topic {message.topic!r}, partition {message.partition}, offset {message.offset}: the "
        f"value cannot be decoded: {reason}. Its bytes are message.raw; pass over it with "
        "message.ack(), or on a shared index with message.reject()",
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        reason=reason,
        message=message,
    )
