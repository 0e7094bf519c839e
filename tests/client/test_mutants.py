"""Mistakes planted in the cores of the client, one at a time: the traces have to find every one."""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from hocket.client_core.calls.part import Part
from hocket.client_core.calls.spread import Spread
from hocket.client_core.consuming.attachment import Attachment
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.inbound import Inbound
from hocket.client_core.consuming.joining import Joined
from hocket.client_core.consuming.parts import Parted
from hocket.client_core.consuming.progress import Progress
from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.producing.fates import Fates
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.placing import Placing
from hocket.client_core.producing.staging import Deciding, StagingCore, StagingPusher
from hocket.client_core.session.router import Router
from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.leases import Leases
from hocket.client_core.sharing.progress import SharedProgress
from hocket.client_core.sharing.settlements import Settlements
from hocket.client_core.sharing.teller import Teller
from hocket.client_core.sharing.window import Window
from tests.support.client.words import ClientWords
from tests.support.core import traces

TRACES = sorted((Path(__file__).parent / "traces").rglob("*.txt"))

# By module or room of a core: which traces are about it. They find most mistakes, and come first.
ABOUT = {
    "calls": "calls", "asking": "router", "session": "router", "producing": "producer",
    "consuming": "subscription", "sharing": "shared", "staging": "transaction",
}  # fmt: skip

# The name of the mistake; the method, what stands there, and what is put in its place.
MUTANTS: dict[str, tuple[type, str, str, str]] = {
    # --- the router ---
    "goes round in circles": (Router, "misplaced", "or search.hops >= HOPS_MAX", ""),
    "counts moves from before the pause": (Router, "pause", "search.hops = 0", "pass"),
    "goes on asking a leader that is gone": (
        Router, "misplaced", 'self._name_leader(route, "")', "pass",
    ),
    "forgets who leads": (Router, "misplaced", "self._name_leader(route, error.node)", "pass"),
    "believes what others say of a node that answers": (
        Router, "nodes_are", "or each.node in met", "",
    ),
    "goes on by the URL alone": (Router, "nodes_are", "addresses.append(address)", "pass"),
    "does not listen to Welcome": (Router, "greeted", "self.nodes_are(welcome.nodes)", "pass"),
    "opens a second session to the node it is at": (
        Router, "_session_to", "self.first.node_id == node", "False",
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
    "tells of old searches": (Router, "served", "self._searches.pop(owner or route, None)", "pass"),
    "opens what has ended": (
        Pusher, "_open_answered", "number != self._asked or ", "",
    ),
    "opens what has ended while it paused": (
        Router, "_try_again", "or not self.first.has(owner)", "",
    ),
    "forgets that it was sent": (
        Part, "_answered", "self._exposed |= answer.may_have_happened", "pass",
    ),
    "believes for ever what one node says of another": (
        Router, "_found", "if r.topic != topic", "",
    ),
    "asks without a pause who leads": (Router, "_may_hop", "search.hops <= HOPS_MAX", "True"),
    "does a change twice while there is no root": (
        Part, "_answered", "(self._repeatable or not answer.may_have_happened)", "True",
    ),
    "says that what no root was sent may have happened": (
        Part, "_wait_for_root", "self._request = None", "pass",
    ),
    "leaves the pauses of who gave up": (Part, "cancel", "self._forget_refusal()", "pass"),
    # --- the producer ---
    "takes a move for a refusal": (
        Pusher, "_refused", "UnknownProducer | NotHere", "UnknownProducer",
    ),
    "does not follow the partitions": (
        Pusher, "_ended_by_broker", "self.session.redirect(self, error)", "False",
    ),
    "keeps the id of a batch that may be stored": (
        Pusher, "gave_up", "self.renewing = True", "pass",
    ),
    "calls what may be stored lost": (
        Pusher, "gave_up", "OutcomeUnknown if batch.may_be_stored else Timeout", "Timeout",
    ),
    "says that nothing happened": (Fates, "fail", "batch.may_be_stored", "False"),
    "does not see that the broker has lost something": (
        Pusher, "_learn_fates", "not gathering.agrees(expected)", "False",
    ),
    "pushes again what may be stored": (
        Pusher, "_id_is_taken", "behind[0].pushes == 1", "True",
    ),
    "takes a full disk for a busy one": (
        Pusher, "_may_be_pushed_again", "now_us - self._full_since_us < FULL_US", "True",
    ),
    "pushes without a bound": (Pusher, "pump", "and gathering.sent < self.in_flight_max", ""),
    "pushes new batches under an id that is given up": (
        Pusher, "pump", "self.renewing and not batch.exposed", "False",
    ),
    "does not go on after an acknowledgement": (Pusher, "_acked", "self.pump(gathering)", "pass"),
    "does not push before a gap again": (
        Pusher, "_refused", "0 if isinstance(error, SequenceGap) else at", "at",
    ),
    "takes what is stored for refused": (
        Gathering, "take_refused", "batch.sequence < expected", "False",
    ),
    # --- a subscription to an own index ---
    "skips what it held when the link broke": (
        SubscriptionCore, "link_up", "progress.expected)", "progress.expected + 1)",
    ),
    "asks for credit that it has used": (
        SubscriptionCore, "link_up", "options.credit_bytes - self.inbound.held_bytes",
        "options.credit_bytes",
    ),
    "opens for more than commits after damage": (
        SubscriptionCore, "link_up", "0 if self.commits_only else ", "",
    ),
    "does not read a new partition from its beginning": (
        SubscriptionCore, "link_up", "start = Start()", "start = options.start",
    ),
    "takes what is stale after a seek": (
        SubscriptionCore, "_delivered", "if progress.sought:", "if False:",
    ),
    "does not see a gap": (
        SubscriptionCore, "_delivered", "frame.offset > progress.expected", "False",
    ),
    "drops what retention has left": (
        SubscriptionCore, "_moved", "progress.skip_to(frame.offset)",
        "self.inbound.replace(progress, frame.offset)",
    ),
    "goes on elsewhere though a seek was refused": (
        SubscriptionCore, "_undo_seek", "seek.former", "self.inbound.position(seek.partition)",
    ),
    "hands out what a crash has lost": (
        SubscriptionCore, "_take_up", "self.inbound.replace(progress, offset)", "pass",
    ),
    "calls an ack durable that was refused": (
        SubscriptionCore, "_committed", "progress.requested = progress.committed",
        "progress.committed = progress.requested",
    ),
    "says nothing of a commit that was refused": (
        SubscriptionCore, "are_committed", "raise again(self._commit_error)", "return True",
    ),
    "lets acks go back": (
        Progress, "gather_acks", "max(self.acked, max(self._acks[:count]) + 1)",
        "self._acks[-1] + 1",
    ),
    "goes on reading after it was fenced": (Attachment, "end", "self._clear()", "pass"),
    "opens what a broker opened too late": (
        Attachment, "_open_answered", "self._is_in_use and number == self._opens", "True",
    ),
    "forgets what it has handed out of a long batch": (
        Inbound, "_handed_out", "self._turns.rotate(-1)", "pass",
    ),
    # --- a subscription to a shared index ---
    "claims what others may have": (
        SharedProgress, "held_still", "at_us < until.get(each, 0)", "True",
    ),
    "settles the next delivery of a message": (
        SharedProgress, "_is_held", "self.held.get(offset) == count", "offset in self.held",
    ),
    "keeps what the application has forgotten": (
        SharedProgress, "forget_lapsed", "self._lapse(", "sorted(",
    ),
    "hands out twice what came again under its count": (
        SharedProgress, "handed_out", "each in offsets and", "False and",
    ),
    "does not say that it tells again": (
        Settlements, "link_lost", "telling.doubtful |= not telling.waits", "pass",
    ),
    "tells a nack again that has come true": (
        Settlements, "link_lost", "telling.quiet or not telling.ranges or telling.is_given_back",
        "telling.quiet or not telling.ranges",
    ),
    "tells renewals again": (
        Settlements, "link_lost", "telling.quiet or not telling.ranges", "not telling.ranges",
    ),
    "hands out what is about to be settled": (
        Settlements, "contested", 'telling.verdict.action in ("ack", "reject")', "False",
    ),
    "tells the application of its own refusals": (
        Settlements, "answered", "telling.is_refused_in_vain", "False",
    ),
    "commits before it is answered": (Settlements, "is_answered", "number > mark", "True"),
    "logs every refusal": (
        Settlements, "add_refused", "now_us - self._refused_us >= BURST_US", "True",
    ),
    "gives up what a busy broker would not hear": (
        Teller, "_not_settled", "error.code in KEPT and is_kept", "False",
    ),
    "keeps what could not be renewed": (
        Teller, "_settled", "telling.quiet and telling.verdict == RENEWAL", "False",
    ),
    "does not renew leases in the queue": (
        Leases, "look_for_old", "self._renew(progress, portion, now_us)", "pass",
    ),
    "hands out old leases": (
        Leases, "_head", "self._renew(progress, portion, now_us)", "pass",
    ),
    "gives credit back twice for a batch that is gone on in": (
        Leases, "keep", "(progress.last, 0)", "(progress.last, progress.last.header.size)",
    ),
    "lets a key overtake": (SharedCore, "_gather", "progress.give_back(offset, hash_)", "pass"),
    "lets a key overtake that still comes": (
        SharedCore, "_leased", "self._release_behind(progress, progress.first_returned())", "pass",
    ),
    "takes for new what comes again under the same count": (
        SharedProgress, "repeated", "found |= here.intersection(range(start, end))", "pass",
    ),
    "lets what waits overtake a key that comes again": (
        Leases, "overtaking", "self.behind(progress, firsts) - came if firsts else set()", "set()",
    ),
    "forgets a release that was refused for the moment": (
        Teller, "_not_settled", "telling.gives_back or not telling.quiet", "not telling.quiet",
    ),
    "drops all of a batch of which one record makes no sense": (
        SharedCore, "_set_aside", "set(offsets)", "ALL",
    ),
    "keeps what it does not use from others": (SharedCore, "_watch", "self._idle = True", "pass"),
    "tells again how far it has handed out": (
        SharedCore, "_handed", "self._told[progress.partition] = at", "pass",
    ),
    "lets others wait for what comes while it leaves": (
        SharedCore, "_leased", "doomed or self._winding_up", "doomed",
    ),
    "raises a refusal in one of two commits": (
        SharedCore, "are_committed", "self._raised != mark.raised", "False",
    ),
    "holds more than its window": (Window, "owed", "- self.granted", ""),
    "never has a larger window": (
        Window, "ran_dry", "self.size = min(self.prefetch, 2 * self.size)", "pass",
    ),
    # --- a transaction ---
    "commits what the broker has dropped": (
        StagingPusher, "_learn_fates", "not gathering.agrees(expected)", "False",
    ),
    "stages the rest under another id": (
        StagingPusher, "_id_is_taken", "self.producer.end(error)", "pass",
    ),
    "stages beside what somebody else has staged": (
        StagingPusher, "_refused", "isinstance(error, TransactionConflict)", "False",
    ),
    "goes on though its handle was ended": (
        StagingPusher, "_ended_by_broker", "self.producer.end(error)",
        "super()._ended_by_broker(error)",
    ),
    "ends a transaction with a broker that comes back": (
        StagingPusher, "_ended_by_broker", "error.code in RETRYABLE", "False",
    ),
    "aborts what it staged under one of its ids": (
        StagingCore, "producer_ids", "list(self.ids)", "list(self.ids)[-1:]",
    ),
    "counts one batch for an acknowledgement": (
        StagingPusher, "_acked", "batch.sequence <= sequence", "batch.sequence == sequence",
    ),
    # --- subscriptions over several nodes ---
    "reads one node to its end": (
        Joined, "_drawn", "self.news[reader] = None", "self.news = {reader: None, **self.news}",
    ),
    "commits when one node has": (Parted, "are_committed", "return all(", "return any("),
    "does not commit what has gone to another part": (
        Parted, "are_committed", "acked.moves != self._moves", "False",
    ),
    "skips what it held of a partition that moved": (
        Inbound, "take_out", "progress.next = progress.expected = at", "pass",
    ),
    "begins new partitions where it was told to begin": (
        Parted, "_distribute", "EARLIEST if part is None or part.was_open else",
        "self.options.start if part is None else",
    ),
    "forgets where what was not opened yet is to begin": (
        Parted, "_may_join", "start == EARLIEST and not but.options.positions", "True",
    ),
    "opens a shared index twice at one node": (
        Parted, "_may_join", 'self.options.mode != "own"', "False",
    ),
    "forgets where what was not opened yet of a shared index is to begin": (
        SharedCore, "link_up", "self.begins or Start()", "Start()",
    ),
    "goes on though it was fenced at one node": (
        Parted, "failed", "self.end(part.failure)", "pass",
    ),
    "takes one node's word that there is no index": (
        Parted, "_is_lacking", "len(self._lacking) < len(self._readers)", "False",
    ),
    "begins late where an index has not been yet": (
        Parted, "opened", "self._make_index(each, EARLIEST)",
        "self._make_index(each, self.options.start)",
    ),
    "gives every node all of the credit": (
        Parted, "_share", "shared_out(self.options, count)", "self.options",
    ),
    "reads a partition twice": (Parted, "_new_located", "if number not in taken", ""),
    "gives up at a node that has not heard of a partition": (
        Parted, "sees_to", "isinstance(error, UnknownPartition)", "False",
    ),
    "does not seek where a partition has gone": (
        SubscriptionCore, "_take_up", "seek.asked is not self.session", "False",
    ),
    "closes at one node what another has opened": (
        Attachment, "_open_answered", "asked.close_handle(answer.handle)\n        self",
        "self.session.close_handle(answer.handle)\n        self",
    ),
    "ends its leases when its topic grows": (
        SharedCore, "_leave_handle", "self.session.handles.pop(handle, None)",
        "self.session.close_handle(handle)",
    ),
    "is another consumer at each node": (
        SharedCore, "join", "self._consumer = other._consumer", "pass",
    ),
    "leaves behind what was said of a partition": (
        Settlements, "hand_over", "if each[0] is moved]", "if False]",
    ),
    "takes a move for a refusal of what was said": (
        Teller, "_not_settled", "isinstance(error, NotHere) and is_kept", "False",
    ),
    # --- topics of several nodes ---
    "leaves the id of a partition behind": (
        Placing, "_place_at",
        "pusher.producer_id, pusher.epoch = former.producer_id, former.epoch", "pass",
    ),
    "pushes under another id what may be stored": (
        Placing, "_place_at", "and not any(map(former.is_bound, gatherings))", "",
    ),
    "does not number what joins": (Pusher, "join", "gathering.unnumbered = True", "pass"),
    "does not open what has joined": (
        Pusher, "_open_answered", "self.is_part and asked != tuple(self.gatherings)", "False",
    ),
    "does not look for new partitions": (
        Placing, "grew", "router.locate_for(finder)", "pass",
    ),
    "asks who leads what though it knows": (
        Placing, "open", "if all(leaders):", "if False:",
    ),
    "believes in partitions that are no more": (
        Pusher, "_opened", "frame.partitions < len(self.producer.gatherings)", "False",
    ),
    "asks a node that nobody has named": (
        Router, "open_at_leader", "if session is not None:", "if True:",
    ),
    "stages under two ids in one partition": (
        StagingPusher, "is_bound", "or self.producer.has_staged(gathering.partition)", "",
    ),
    "asks in vain who decides": (
        Deciding, "__init__", "router.leader_of(self._route)", "False",
    ),
    "answers before it knows that the topic has grown": (
        Spread, "_finish", "or not self._located", "",
    ),
    "says that nothing happened though one node has done it": (
        Spread, "may_have_happened", "bool(self._answers) or ", "",
    ),
    "takes one node's word that there is no such index": (
        Spread, "_finish", "missing and not self._answers", "missing",
    ),
    "forgets that there are more pages": (
        Spread, "_answered", "isinstance(answer, frames.Indexes) and answer.next", "False",
    ),
    "takes partitions that have parted for refused": (
        Spread, "_answered", "isinstance(answer, SeveralNodes)", "False",
    ),
    "deletes other messages than it was told": (
        Spread, "_frame_for", "packed(offsets[number] for number in numbers)", "frame.offsets",
    ),
    "does not ask the node that decides": (Deciding, "_ask_elsewhere", "self._ask()", "pass"),
    "says that a commit cannot have happened": (
        Deciding, "_may_be_asked_again", "self._doubtful", "False",
    ),
    "tries a full disk for ever": (
        Deciding, "_may_be_asked_again", "now_us < self._full_until_us", "True",
    ),
    "answers who has given up": (Deciding, "cancel", "self._session.cancel(request)", "pass"),
}  # fmt: skip


def plant(patch: pytest.MonkeyPatch, owner: type, name: str, old: str, new: str) -> None:
    there = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(getattr(there, "fget", there)))
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {name}"
    source = source.replace(old, new).replace("super()", f"super({owner.__name__}, self)")
    made: dict[str, Any] = {}
    exec(source, vars(sys.modules[owner.__module__]), made)
    patch.setattr(owner, name, made[name])


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(monkeypatch, mutant):
    plant(monkeypatch, *MUTANTS[mutant])
    home = MUTANTS[mutant][0].__module__.split(".")
    folder = next(ABOUT[each] for each in reversed(home) if each in ABOUT)
    for path in sorted(TRACES, key=lambda path: path.parent.name != folder):
        try:
            traces.play(path, ClientWords().carry_out)
        except Exception:
            return
    pytest.fail(f"no trace has found that the client {mutant}")
