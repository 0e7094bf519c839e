"""Errors as Cap'n Proto exceptions, whose reason begins with the error's code.

pycapnp sends a method's exception as Python would print it: a traceback, then the type's name, then
the text; and before all that, `message = `. None of our paths and lines are a client's business, so
what is raised here has no traceback to show, and its type is named for the code. What is left is
`message = code: text`. Of that, the beginning is taken away when it leaves (`cleaned`), and since
nothing may change its length any more there, blanks are put at its end.

To find it among the bytes, what is raised stands between marks that nobody outside can know.
"""

from __future__ import annotations

import secrets
from functools import cache
from typing import Any

import capnp  # type: ignore[import-untyped]

from hocket.errors import HocketError

_BEGIN = secrets.token_hex(8)
_END = secrets.token_hex(8)
_PREFIX = b"message = "


class Failure(Exception):
    """What a client is told; its class has the code for a name."""

    # Nobody gets to see it; but those who pass it on must be able to cut it, or it would hold
    # what it went through.
    __traceback__ = property(lambda _self: None, BaseException.__dict__["__traceback__"].__set__)


@cache
def _named(code: str) -> type[Failure]:
    # Of a builtin, Python prints the name alone, without its module.
    return type(code, (Failure,), {"__module__": "builtins", "__qualname__": _BEGIN + code})


def failure(error: HocketError) -> Failure:
    return _named(code_of(error))(str(error) + _END)


def forget_trace(error: BaseException | None) -> None:
    """An error that was raised from a variable and its trace refer to each other.

    Such a circle holds whatever it went through, capabilities too, until the garbage collector
    comes along; and that may run on a thread where pycapnp's objects must not be freed.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def cleaned(data: bytes) -> bytes:
    """Bytes on their way out, in which there may be a failure."""
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
    """Its name on the wire; an error that never goes there otherwise goes by its own: `timeout`."""
    kind = type(error)
    if error.code != HocketError.code or kind is HocketError:
        return error.code
    return kind.__name__[0].lower() + kind.__name__[1:]


def reason_of(error: BaseException) -> str:
    """Why a call to the other side failed, without the stack addresses Cap'n Proto adds."""
    if isinstance(error, capnp.KjException):
        described: Any = error.description
        return str(described).strip()
    return str(error)
