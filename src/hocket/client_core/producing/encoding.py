"""Values of a type on their way to a topic: encoded before anything is taken, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hocket.client_core.producing.records import as_list
from hocket.errors import Unencodable, WrongKind
from hocket.values import Coder, coder


class Absent:
    """Stands for an argument that was not given, where None would be one."""


ABSENT: Any = Absent()


class Encoding:
    """Encodes the values of one topic."""

    def __init__(self, topic: str, coder: Coder[Any]) -> None:
        self._topic = topic
        self._encode = coder.encode

    def encoded(self, value: object, where: str = "") -> bytes:
        """Raises Unencodable. `where` names the value if there are several."""
        try:
            data: object = self._encode(value)
        except Exception as error:
            raise self._refused(where, str(error) or type(error).__name__) from error
        if not isinstance(data, bytes):
            raise self._refused(where, f"its coder made {type(data).__name__} of it, not bytes")
        return data

    def all_encoded(self, values: object) -> list[bytes]:
        items = as_list(values, "values")
        return [self.encoded(each, f"values[{at}]") for at, each in enumerate(items)]

    def _refused(self, where: str, reason: str) -> Unencodable:
        which = where or "the value"
        return Unencodable(
            f"topic {self._topic!r}: {which} cannot be encoded: {reason}. Nothing was sent"
        )


def coder_for(value: Any) -> Coder[Any] | None:
    """What `value=` means; None: bytes as they are. Raises WrongType."""
    return None if value is None or value is bytes else coder(value)


def payload(topic: str, message: Any, value: Any) -> Any:
    """The bytes of a message that was given with `value=`, for calls that take single messages.

    There, `value` was once the name of the message itself: with `value=` alone it still is.
    """
    if message is ABSENT:
        return value
    found = coder_for(value)
    return message if found is None else Encoding(topic, found).encoded(message)


def payloads(topic: str, values: Any, value: Any) -> Sequence[Any]:
    found = coder_for(value)
    return values if found is None else Encoding(topic, found).all_encoded(values)


def no_arrow() -> WrongKind:
    return WrongKind(
        "a producer with value= encodes values one by one, and Arrow columns hold bytes: open a "
        "producer without value= to send columns"
    )
