"""Values of a type, as the bytes that a message carries: what `value=` of a client takes.

    client.producer("orders", value=Order)
    client.subscribe("orders", value=Order)

`value=` is a type, or a *coder*: an object with two functions, `encode` and `decode`. Types are
written as JSON. What is installed (orjson, msgspec) decides how fast that is, never what it means.

    text       plain JSON values as text, by whichever library is there
    misfit     why a value does not fit
    plain      the forms that JSON has no word for: dates, UUIDs, decimals, enums, bytes
    shapes     what a type looks like in JSON: dataclasses, TypedDicts, lists, unions
    foreign    pydantic's and msgspec's own types, which these libraries code themselves
    coders     which of them codes a type

Nothing but this file is loaded before somebody asks for a coder.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, overload

T = TypeVar("T")


class Coder(Protocol[T]):
    """Makes bytes of values, and values of bytes; what `decode` gives is what `encode` was given.

    Either may raise whatever it likes: the client turns it into `Unencodable` or `Undecodable`,
    with the topic and the place. Several threads may call it at the same time.
    """

    def encode(self, value: T, /) -> bytes: ...
    def decode(self, data: bytes, /) -> T: ...


@overload
def coder(kind: type[T] | Coder[T]) -> Coder[T]: ...
@overload
def coder(kind: Any) -> Coder[Any]: ...


def coder(kind: Any) -> Coder[Any]:
    """The coder of a type; a coder stays as it is. Raises WrongType if there can be none.

    For what a type checker does not take for a type, such as `Order | None`; and to make the coder
    of such a type once, and not with every `publish`.
    """
    from hocket.values.coders import coder_of

    return coder_of(kind)
