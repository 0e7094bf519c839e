"""Errors as Cap'n Proto exceptions, whose reason begins with the error's code.

pycapnp sends a method's exception as Python would print it: first `message = `, then a traceback,
then the type's name, then the text. Our paths and line numbers are not a client's business, so what
is raised here shows no traceback, and its type is named after the code. What is left is
`message = code: text`. `cleaned` removes `message = ` from the bytes on their way out; the length
of these bytes must not change any more, so `cleaned` adds blanks at the end of the text.

To find the text among the bytes, `failure` puts it between marks that nobody outside can know.
"""

from __future__ import annotations

import secrets
from functools import cache
from typing import Any

import capnp  # type: ignore[import-untyped]

from hocket.errors import HocketError, Timeout

_BEGIN = secrets.token_hex(8)
_END = secrets.token_hex(8)
_PREFIX = b"message = "


class Failure(Exception):
    """What a client is told. The name of its class is the error's code."""

    # Nobody may read the traceback. Setting it must work all the same: whoever passes the failure
    # on cuts the traceback, which would otherwise hold the frames that it went through.
    __traceback__ = property(lambda _self: None, BaseException.__dict__["__traceback__"].__set__)


@cache
def _named(code: str) -> type[Failure]:
    # Python prints the name of a builtin without its module.
    return type(code, (Failure,), {"__module__": "builtins", "__qualname__": _BEGIN + code})


def failure(error: HocketError) -> Failure:
    return _named(code_of(error))(str(error) + _END)


def text_of(told: Failure) -> str:
    """What a client is told, without the marks."""
    name = type(told).__qualname__.removeprefix(_BEGIN)
    return f"{name}: {str(told).removesuffix(_END)}"


def forget_trace(error: BaseException | None) -> None:
    """An error that was raised from a variable and its trace refer to each other.

    Such a circle holds whatever it went through, capabilities too, until the garbage collector
    comes along; and that may run on a thread where pycapnp's objects must not be freed.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def cleaned(data: bytes) -> bytes:
    """The bytes on their way out, without the marks of the failure that may be among them."""
    begin, end = _BEGIN.encode(), _END.encode()
    at = data.find(begin)
    stop = data.find(end, at)
    if at < 0 or stop < 0:
        return data
    text = data[at + len(begin) : stop]
    start = at - len(_PREFIX) if data[:at].endswith(_PREFIX) else at
    stop += len(end)
    stop += data[stop : stop + 1] == b"\n"
    return b"".join((data[:start], text.ljust(stop - start), data[stop:]))


def code_of(error: HocketError) -> str:
    """The error's name on the wire.

    An error that no broker sends has no code; it goes by the name of its class: `timeout`.
    Every kind of Timeout is `timeout`: that is the word that RPC clients look for.
    """
    kind = Timeout if isinstance(error, Timeout) else type(error)
    if error.code != HocketError.code or kind is HocketError:
        return error.code
    return kind.__name__[0].lower() + kind.__name__[1:]


def reason_of(error: BaseException) -> str:
    """Why a call to the other side failed, without the stack addresses Cap'n Proto adds."""
    if isinstance(error, capnp.KjException):
        described: Any = error.description
        return str(described).strip()
    return str(error)
