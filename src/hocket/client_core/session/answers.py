"""What an answer to a request means, and what an error becomes when it is handed on."""

from __future__ import annotations

from typing import TypeGuard

from hocket import frames
from hocket.errors import (
    Closed,
    HocketError,
    NoConnection,
    NotHere,
    NotHocket,
    ProtocolError,
    from_code,
)
from hocket.frames import Frame

# Whoever asked one of these and got no answer knows that it has changed nothing.
_READ_ONLY = (
    frames.Ping, frames.ListTopics, frames.DescribeTopic, frames.FindOffsets, frames.ListIndexes,
    frames.DescribeAccess, frames.ExplainAccess, frames.DescribeRing, frames.LookUpKey,
    frames.ListNodes, frames.FindLeaders, frames.ReadAudit, frames.DescribeCluster,
    frames.DescribeTree, frames.ListNames, frames.FindName, frames.DescribePlugins,
)  # fmt: skip


class Unreachable(NoConnection):
    """The session to one node of several is over: whoever asked there may ask another node.

    `may_have_happened` says whether the request was sent.
    """


def error_of(failure: frames.Failure) -> HocketError:
    error = from_code(failure.code, failure.message)
    error.may_have_happened = failure.may_have_happened
    if isinstance(error, NotHere):
        error.node, error.address = failure.node, failure.address
    return error


def cannot_connect(target: str, error: HocketError, was_refused: bool) -> HocketError:
    """What to tell whoever gets no broker. `was_refused`: by somebody, in words of Hocket."""
    text = f"no broker can be reached at {target}: {str(error).removesuffix('.')}."
    if isinstance(error, NotHocket):
        return NotHocket(f"{text} Is the address right? A broker's port is 4150, if nobody "
                         "has chosen another")  # fmt: skip
    if type(error) is NoConnection:  # any other error is the word of somebody who is there
        text += " Is it running? Start one with: hocket serve"
    if isinstance(error, ProtocolError) and not was_refused:
        text += " What answers there does not speak Hocket"
    return NoConnection(text)


def again(error: HocketError) -> HocketError:
    """The same error for another caller: one raised twice would gather the traces of both."""
    copy = type(error)(str(error))
    vars(copy).update(vars(error))  # what else the error tells
    return copy


def closed(what: str) -> Closed:
    return Closed(f"{what} is closed")


def points_elsewhere(answer: Frame | HocketError) -> TypeGuard[HocketError]:
    """Whether it says that another node is to be asked, and that nothing was done by this one."""
    return isinstance(answer, Unreachable) or (isinstance(answer, NotHere) and bool(answer.node))


def is_read_only(frame: Frame) -> bool:
    """Whoever asked this and got no answer knows that it has changed nothing."""
    return isinstance(frame, _READ_ONLY)
