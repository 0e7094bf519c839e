"""The asker of a request, as the cores name it: they answer to an origin, and the node finds it."""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """Who asked, and so who is answered."""

    connection: int
    handle: int  # of the producer or subscription; 0 for a one-off request
    request: int  # 0 for a pushed batch


class Asked(NamedTuple):
    """A request that one node has handed to another: who handed it on, and under which number."""

    node: str  # the id of its store
    number: int  # never used twice by that node, not even in another life
