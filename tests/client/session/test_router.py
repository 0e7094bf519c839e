"""Who looks for a leader, and for how long already: what traces do not show."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.addresses import Address
from hocket.client_core.outbox import Outbox
from hocket.client_core.session.router import PAUSES_ALONE, Router
from hocket.client_core.session.session import Route
from hocket.errors import HocketError, NotAllowed, NotHere


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
    for _ in range(PAUSES_ALONE):
        router.redirect(looks, refused_by(""))
        router.served(served.route, served)
    assert router.tried("orders", 0)
    assert router._searches[looks].pauses == PAUSES_ALONE
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


def test_what_is_refused_to_who_asks_for_advice_is_told(monkeypatch: pytest.MonkeyPatch):
    """The first node is cut off and knows nobody; another one has heard that a right is gone."""
    router = Router(Outbox(Random(1)), target="a", addresses=[Address("a", 4150)])
    router.is_spread("orders", 4)
    looks = looking(router, 0)
    router.redirect(looks, refused_by(""))
    asked = []

    def refuse(_frame: object, answered: Callable[[HocketError], None], **_more: object) -> None:
        asked.append("b")
        answered(NotAllowed("user 'ann' may not subscribe to 'orders'"))

    adviser = SimpleNamespace(node_id="b", target="b", request=refuse)
    monkeypatch.setattr(router, "_adviser", lambda _topic: adviser)
    monkeypatch.setattr(router.first, "request", lambda *_args, **_more: asked.append("a"))
    router.locate("orders", lambda _error: None)
    assert asked == ["b", "a"]
    assert "node b: user 'ann' may not" in router.tried("orders", 0)
