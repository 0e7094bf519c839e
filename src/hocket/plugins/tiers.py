"""A storage tier that a plug-in offers: checked, timed, and given to the node's log.

What such a place has to do is said by `hocket.log.tier.place`, and what becomes of it when it is
slow or lost by `hocket.log.tier.tiering`. Whatever it raises stops there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from hocket.adapters.executor import ThreadExecutor
from hocket.log.tier.place import StorageTier, problem_of
from hocket.plugins.found import Unusable

if TYPE_CHECKING:
    from hocket.node.node import Node

log = logging.getLogger("hocket.plugins")
T = TypeVar("T")
METHODS = ("store", "fetch", "remove", "keys")


class Offer(NamedTuple):
    """A plug-in with the hook `storage_tier`."""

    plugin: Any  # for `told`
    name: str
    is_closed: bool
    open: Callable[[], StorageTier | None]


Told = Callable[[Any, int, BaseException | None], None]  # plug-in, nanoseconds, what it raised


def attach_tier(node: Node, offers: Sequence[Offer], told: Told) -> None:
    """Raises Unusable if there are two, or if the one that there is cannot be used and is closed.

    An open one that cannot be used is left out: what is there already cannot be read then.
    """
    if len(offers) > 1:
        names = " and ".join(f"'{each.name}'" for each in offers)
        raise Unusable(f"plug-ins {names} are storage tiers, and a node has one at most")
    for each in offers:
        try:
            place = each.open()
            if place is None:
                continue
            check(place)
        except Exception as error:
            words = f"plug-in '{each.name}' has no storage tier: {type(error).__name__}: {error}"
            if each.is_closed:
                raise Unusable(words) from error
            log.warning("%s", words)
            continue
        assert isinstance(node.executor, ThreadExecutor)
        threads = node.executor.beside("hocket storage tier")
        timed = _Timed(place, lambda took, error, each=each: told(each.plugin, took, error))  # type: ignore[misc]
        node.store.tier.attach(timed, each.name, threads, threads.abandon)


def check(place: Any) -> None:
    """Raises TypeError for what is no storage tier."""
    for name in METHODS:
        if not callable(getattr(place, name, None)):
            raise TypeError(f"a {type(place).__name__} has no method '{name}'")
    problem = problem_of(getattr(place, "rules", None))
    if problem:
        raise TypeError(problem)


class _Timed:
    """The place, with each of its calls timed."""

    def __init__(self, place: StorageTier, told: Callable[[int, BaseException | None], None]):
        self._place = place
        self._told = told
        self._lock = Lock()  # several threads call
        self.rules = place.rules

    def store(self, key: str, source: BinaryIO) -> None:
        self._call(lambda: self._place.store(key, source))

    def fetch(self, key: str, target: BinaryIO) -> None:
        self._call(lambda: self._place.fetch(key, target))

    def remove(self, key: str) -> None:
        self._call(lambda: self._place.remove(key))

    def keys(self, prefix: str) -> Iterable[str]:
        return self._call(lambda: list(self._place.keys(prefix)))

    def _call(self, call: Callable[[], T]) -> T:
        began = perf_counter_ns()
        failed: BaseException | None = None
        try:
            return call()
        except BaseException as error:
            failed = error
            raise
        finally:
            with self._lock:
                self._told(perf_counter_ns() - began, failed)
