"""An error as the frame that tells a client of it."""

from __future__ import annotations

from hocket import frames
from hocket.errors import HocketError, NotHere

FAILURE_TEXT_MAX = 10_000


def failure(request: int, error: HocketError) -> frames.Failure:
    text = str(error)
    if len(text) > FAILURE_TEXT_MAX:
        text = text[: FAILURE_TEXT_MAX - 3] + "..."
    there = (error.node, error.address) if isinstance(error, NotHere) else ()
    return frames.Failure(request, error.code, text, error.may_have_happened, *there)
