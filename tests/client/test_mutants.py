"""Mistakes planted in the cores of the client, one at a time: the traces have to find every one."""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from hocket.client_core.calls.asking import Asking
from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.session.router import Router
from tests.support.client.words import ClientWords
from tests.support.core import traces

TRACES = sorted((Path(__file__).parent / "traces").rglob("*.txt"))

# The name of the mistake; the method, what stands there, and what is put in its place.
MUTANTS: dict[str, tuple[type, str, str, str]] = {
    # --- the router ---
    "goes round in circles": (Router, "misplaced", "or search.hops >= HOPS_MAX", ""),
    "counts moves from before the pause": (Router, "pause", "search.hops = 0", "pass"),
    "goes on asking a leader that is gone": (
        Router, "misplaced", "self._leaders.pop(topic, None)", "pass",
    ),
    "forgets who leads": (Router, "misplaced", "self._leaders[topic] = error.node", "pass"),
    "believes what others say of a node that answers": (
        Router, "nodes_are", "or each.node in met", "",
    ),
    "goes on by the URL alone": (Router, "nodes_are", "addresses.append(address)", "pass"),
    "does not listen to Welcome": (Router, "greeted", "self.nodes_are(welcome.nodes)", "pass"),
    "opens a second session to the node it is at": (
        Router, "session_to", "self.first.node_id == node", "False",
    ),
    "waits for the one node that is gone": (
        Router, "unreachable", "if session is self.first:", "if True:",
    ),
    "leaves owners behind on a session that is over": (
        Router, "unreachable", "self._pause(owner)", "pass",
    ),
    "leaves sessions open when the client is closed": (
        Router, "ended", "other.close(again(error))", "pass",
    ),
    "lets those who pause wait though the client is closed": (Router, "ended", "pause()", "pass"),
    "closes a session that was used just now": (
        Router, "_look_for_idle", "idle & self._idle", "idle",
    ),
    "closes the first session": (Router, "_look_for_idle", "- {0}", ""),
    "tells of old searches": (Router, "served", "self._searches.pop(topic, None)", "pass"),
    "opens what has ended": (Router, "redirect", "or not owner.session.has(owner)", ""),
    "opens what has ended while it paused": (
        Router, "_try_again", "and self.first.has(owner)", "",
    ),
    "forgets that it was sent": (
        Asking, "_answered", "self._exposed |= answer.may_have_happened", "pass",
    ),
    # --- the producer ---
    "takes a move for a refusal": (
        Pusher, "_refused", "UnknownProducer | NotHere", "UnknownProducer",
    ),
    "does not follow the partitions": (
        Pusher, "_ended_by_broker", "self.session.redirect(self, error)", "False",
    ),
    "keeps the id of a batch that may be stored": (
        Pusher, "_expire", "self._renewing = expired = True", "expired = True",
    ),
    "calls what may be stored lost": (
        Pusher, "_expire", "OutcomeUnknown if batch.may_be_stored else Timeout", "Timeout",
    ),
    "says that nothing happened": (Pusher, "_fail", "batch.may_be_stored", "False"),
    "does not see that the broker has lost something": (
        Pusher, "_learn_fates", "not gathering.agrees(expected)", "False",
    ),
    "pushes again what may be stored": (
        Pusher, "_id_is_taken", "behind[0].pushes == 1", "True",
    ),
    "takes a full disk for a busy one": (
        Pusher, "_may_be_pushed_again", "now_us - self._full_since_us < FULL_US", "True",
    ),
    "pushes without a bound": (Pusher, "_pump", "and gathering.sent < self.in_flight_max", ""),
    "pushes new batches under an id that is given up": (
        Pusher, "_pump", "self._renewing and not batch.exposed", "False",
    ),
    "does not go on after an acknowledgement": (Pusher, "_acked", "self._pump(gathering)", "pass"),
    "does not push before a gap again": (
        Pusher, "_refused", "0 if isinstance(error, SequenceGap) else at", "at",
    ),
    "takes what is stored for refused": (
        Gathering, "take_refused", "batch.sequence < expected", "False",
    ),
}  # fmt: skip


def plant(patch: pytest.MonkeyPatch, owner: type, name: str, old: str, new: str) -> None:
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {name}"
    made: dict[str, Any] = {}
    exec(source.replace(old, new), vars(sys.modules[owner.__module__]), made)
    patch.setattr(owner, name, made[name])


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(monkeypatch, mutant):
    plant(monkeypatch, *MUTANTS[mutant])
    for path in TRACES:
        try:
            traces.play(path, ClientWords().carry_out)
        except Exception:
            return
    pytest.fail(f"no trace has found that the client {mutant}")
