"""An error as the frame that tells a client of it."""

from __future__ import annotations

from hocket import frames
from hocket.errors import HocketError, NotHere

FAILURE_TEXT_MAX = 10_000


def told(text: str) -> str:
    """What of a text fits a frame. Plug-ins give reasons, too, and may quote what was published."""
    if len(text) > FAILURE_TEXT_MAX:
        text = text[: FAILURE_TEXT_MAX - 3] + "..."
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def failure(request: int, error: HocketError) -> frames.Failure:
    text = told(str(error))
    there = (error.node, error.address) if isinstance(error, NotHere) else ()
    return frames.Failure(request, error.code, text, error.may_have_happened, *there)
