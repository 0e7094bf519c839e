"""The asker of a request, as the cores name it: they answer to an origin, and the node finds it."""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """Who asked, and so who is answered."""

    connection: int
    handle: int  # of the producer or subscription; 0 for a one-off request
    request: int  # 0 for a pushed batch
