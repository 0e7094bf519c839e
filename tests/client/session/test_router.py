"""Who looks for a leader, and for how long already: what traces do not show."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from hocket.addresses import Address
from hocket.client_core.outbox import Outbox
from hocket.client_core.session.router import PATIENCE, Router
from hocket.client_core.session.session import Route
from hocket.errors import NotHere


def refused_by(node: str) -> NotHere:
    error = NotHere("it is led elsewhere")
    error.node, error.address = node, f"{node}:4150"
    return error


def looking(router: Router, *partitions: int) -> Any:
    """Somebody who wants to be open where these partitions are led."""
    owner = _Owner(router, Route("orders", partitions[0]))
    router.first.adopt(owner)
    return owner


class _Owner(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__  # type: ignore[assignment]

    def __init__(self, router: Router, route: Route) -> None:
        super().__init__(session=router.first, route=route, topic=route.topic)

    def located(self, error: object) -> None: ...


def test_who_is_served_does_not_end_the_search_of_another_one():
    """Both have partition 0, and the other one has a partition, too, that nobody leads."""
    router = Router(Outbox(Random(1)), target="a", addresses=[Address("a", 4150)])
    router.is_spread("orders", 4)
    served, looks = looking(router, 0), looking(router, 0, 3)
    for _ in range(PATIENCE):
        router.redirect(looks, refused_by(""))
        router.served(served.route, served)
    assert router.tried("orders", 0)
    assert router._searches[looks].pauses == PATIENCE
    router.served(looks.route, looks)
    assert not router.tried("orders")


def test_what_one_has_tried_that_has_ended_is_told_no_more():
    router = Router(Outbox(Random(1)), target="a", addresses=[Address("a", 4150)])
    router.is_spread("orders", 4)
    looks = looking(router, 0)
    router.redirect(looks, refused_by(""))
    assert router.tried("orders")
    looks.session.remove(looks)
    assert not router.tried("orders")
    assert not router._searches
