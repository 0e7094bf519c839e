"""The stage that traces of the client's cores are played on: commands in words, effects in words.

Everybody else is the trace itself. A node `a` is reached at the address a:1 and has the id a. Time
moves only by `wait`. What a node sends is written `a> Kind field=value ...`: it answers the oldest
request of that link which has no answer yet, unless the kind is one that answers nothing.
`a> notHere b` is short for the Failure that names b; `a> notHere b somewhere` has no address.
The words of subscriptions are in `consumer_words`.
`a> leaders a,b,-` is short for LeadersAre: a leads the first partition, nobody the third.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from itertools import groupby
from random import Random
from typing import Any, get_args

from hocket import frames
from hocket.addresses import Address
from hocket.client.engines import timeouts
from hocket.client.engines.timers import Timers
from hocket.client_core import outbox as effects
from hocket.client_core.calls import access, topics
from hocket.client_core.calls.asking import Asking
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.outbox import Outbox
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions
from hocket.client_core.producing.publishing import Publications, PublishCore
from hocket.client_core.producing.records import Record, checked
from hocket.client_core.producing.staging import (
    Deciding,
    StagingCore,
    abort_of,
    participants_of,
    producers_of,
)
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Session
from hocket.cluster_model import NodeAddress, NodeDescription
from hocket.errors import Closed, CorruptData, HocketError, NoConnection
from hocket.frames import Frame, packed, unpacked
from hocket.model import IndexDescription, IndexPartition, Limits, Participant, Start
from hocket.wire.batch import check_entries, parse
from tests.support.client.consumer_words import ConsumerWords
from tests.support.client.scripted import ManualClock, stored

KINDS = {kind.__name__: kind for kind in get_args(Frame)}
UNASKED = (
    frames.Deliver, frames.Lease, frames.PushAcked, frames.PushRefused, frames.Moved,
    frames.HandleEnded, frames.PartitionsChanged, frames.Goodbye, frames.Ping,
)  # fmt: skip
PACKED = {
    "offsets", "sequences", "partitions", "positions", "ranges", "held", "refused", "handed",
    "groups", "places",
}  # fmt: skip
HIDDEN = {"request", "features", "client", "token", "consumer"}
# What goes without saying in OpenSubscription; an own index has no prefetch.
USUAL = {"credit_bytes": [SubscriptionOptions().credit_bytes], "prefetch": [16, 0]}


def duration(us: int) -> str:
    for size, unit in ((1_000_000, "s"), (1_000, "ms")):
        if us >= size:
            return f"{us / size:g} {unit}"
    return f"{us} us"


def microseconds(text: str) -> int:
    for unit, size in (("ms", 1_000), ("us", 1), ("s", 1_000_000)):
        if text.endswith(unit):
            return round(float(text.removesuffix(unit)) * size)
    raise ValueError(text)


def error_words(error: HocketError) -> str:
    doubt = ", may have happened" if error.may_have_happened else ""
    place = ""
    if isinstance(error, CorruptData) and error.start is not None:
        place = f" of {error.topic}/{error.partition}/{error.start} to {error.end}"
    return f"{type(error).__name__}{doubt}{place}: {error}"


def frame_words(frame: Frame, payload: bytes) -> str:
    said = []
    for each in fields(frame):
        value = getattr(frame, each.name)
        if isinstance(frame, frames.Done):
            return f"Done request={frame.request}"
        is_plain = each.name in HIDDEN or value == each.default or value in (0, "", b"", (), None)
        if each.name in USUAL:
            is_plain = value in USUAL[each.name]
        if is_plain and (each.name not in ("partition", "handle") or each.default is not MISSING):
            continue
        if each.name in PACKED and isinstance(value, bytes):
            value = ",".join(map(str, unpacked(value)))
        elif isinstance(value, bytes):
            value = value.decode().strip("\0")
        elif isinstance(value, Start):
            value = value.kind if value.kind != "offset" else value.value
        elif each.name in ("participants", "producers"):
            value = ", ".join(map(_part_words, value))
        said.append(f" {each.name}={value}")
    if payload:
        for info in check_entries(payload):
            values = " ".join(bytes(v).decode() for v in parse(payload, info.position).values())
            who = info.producer_id.decode().strip("\0")
            said.append(f" [{values}] #{info.sequence}" + (f" of {who}" if who else ""))
    return type(frame).__name__ + "".join(said)


def _part_words(part: Participant | bytes) -> str:
    if isinstance(part, bytes):
        return part.decode().strip("\0")
    staged = f"{part.batches} batches, {part.records} records"
    return f"{part.topic}/{part.partition} ({staged} of {_part_words(part.producer_id)})"


def together(lines: list[str]) -> list[str]:
    """Leases are looked after ten times in the length of one: that is said in one line."""
    found: list[str] = []
    for line, same in groupby(lines):
        count = len(list(same))
        if line.endswith(": watch") and count > 1:
            found.append(f"{line}, {count} times")
        else:
            found += [line] * count
    return found


class Link:
    def __init__(self, session: int, number: int, node: str) -> None:
        self.session, self.number, self.node = session, number, node
        self.unanswered: list[int] = []
        self.count = 0  # of what was heard


class ClientWords(ConsumerWords):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.timers = Timers(self.clock, lambda: None)
        self.outbox = Outbox(Random(0))
        self.router: Router
        self.links: dict[int, Link] = {}  # those that are open or being opened
        self.cores: dict[str, Any] = {}
        self.asked: dict[str, tuple[Asking, str]] = {}
        self.published: dict[str, list[Record]] = {}  # by publisher, in order
        self.limits = Limits()
        self.lines: list[str] = []

    def carry_out(self, line: str) -> list[str]:
        """One command; what came of it."""
        self.lines = []
        self._turn(partial(self._command, line))
        return together(self.lines)

    def _command(self, line: str) -> None:
        words: list[str] = []
        options: dict[str, str] = {}
        for word in shlex.split(line):
            key, found, value = word.partition("=")
            if found and key.isidentifier():
                options[key] = value
            else:
                words.append(word)
        if words[0].endswith(">"):
            self._from(words[0][:-1], *words[1:], **options)
        else:
            getattr(self, "do_" + words[0])(*words[1:], **options)

    def _turn(self, act: Callable[[], None]) -> None:
        self.outbox.now_us = self.clock.ticks
        self.outbox.wall_ahead_us = self.clock.wall - self.clock.ticks
        try:
            act()
        except HocketError as error:
            self.lines.append(f"raises {error_words(error)}")
        while self.outbox.effects:
            effect = self.outbox.effects.popleft()
            getattr(self, "on_" + type(effect).__name__)(effect)

    # --- effects ---------------------------------------------------------------------------------

    def on_Dial(self, effect: effects.Dial) -> None:  # noqa: N802 - named as the effect
        node = effect.address.host if effect.address else "embedded"
        self.links[effect.link] = Link(effect.session, effect.link, node)
        self.lines.append(f"dial {node}")

    def on_Send(self, effect: effects.Send) -> None:  # noqa: N802
        link = self.links[effect.link]
        if effect.frame.request and not isinstance(effect.frame, frames.Done):
            link.unanswered.append(effect.frame.request)
        words = frame_words(effect.frame, b"".join(effect.payload))
        if isinstance(effect.frame, frames.OpenSubscription):
            words += self.consumer_words(effect.frame.consumer)
        self.lines.append(f"to {link.node}: {words}")

    def on_HangUp(self, effect: effects.HangUp) -> None:  # noqa: N802
        self.lines.append(f"hang up on {self.links.pop(effect.link).node}")

    def on_Listen(self, effect: effects.Listen) -> None:  # noqa: N802
        link = self.links[effect.link]
        self._session(link).heard(link.number, link.count)

    def on_Arm(self, effect: effects.Arm) -> None:  # noqa: N802
        self.timers.put(effect.due_us, effect.timer)
        action: Any = effect.timer.action
        action = getattr(action, "func", action)
        what = action.__name__.strip("_<>").replace("_", " ").replace("lambda", "resume")
        self.lines.append(f"in {duration(effect.due_us - self.clock.ticks)}: {what}")

    def on_Report(self, effect: effects.Report) -> None:  # noqa: N802
        self.lines.append(f"{effect.level}: {effect.text % effect.facts}")

    def on_Wake(self, effect: effects.Wake) -> None:  # noqa: N802
        effect.wake_ups.carry_out()

    def on_Tell(self, effect: effects.Tell) -> None:  # noqa: N802
        effect.tell()

    def _told(self, name: str, batch: Outgoing, outcome: Outcome) -> None:
        if isinstance(outcome, Positions):
            said = f"stored at {outcome.topic}/{outcome.partition}/{outcome.start}"
        else:
            said = error_words(outcome)
        self.lines.append(f"{name} is told of {batch.count} records: {said}")

    # --- links -----------------------------------------------------------------------------------

    def _session(self, link: Link) -> Session:
        return self.router.sessions[link.session]

    def _link(self, node: str) -> Link:
        return next(link for link in reversed(self.links.values()) if link.node == node)

    def do_client(self, nodes: str, **options: str) -> None:
        """A client whose URL names these nodes."""
        addresses = [Address(node, 1) for node in nodes.split(",")]
        self.router = Router(self.outbox, target=f"hocket://{nodes}", addresses=addresses)
        self.limits = Limits(**{name: int(value) for name, value in options.items()})
        self.router.first.start()

    def do_open(self, node: str) -> None:
        link = self._link(node)
        self._session(link).link_opened(link.number)

    def do_up(self, node: str, **said: str) -> None:
        """The link that was dialled comes about, and the node welcomes the client."""
        self.do_open(node)
        self._turn(lambda: None)
        self.lines = [line for line in self.lines if "Hello" not in line and "greeting" not in line]
        self.do_welcome(node, **said)

    def do_welcome(
        self, node: str, knows: str = "", cluster: str = "c", version: str = "1"
    ) -> None:
        known = tuple(NodeAddress(each, f"{each}:1") for each in knows.split(",") if each)
        link = self._link(node)
        welcome = frames.Welcome(
            link.unanswered.pop(0), int(version), node, "software", ("delayed",), self.limits,
            cluster, node, known,
        )  # fmt: skip
        self._received(link, welcome, b"")

    def do_lose(self, node: str, why: str = "cut") -> None:
        """The link to the node breaks, or does not come about."""
        link = self._link(node)
        session = self._session(link)
        del self.links[link.number]
        session.link_lost(link.number, NoConnection(f"{node}:1: {why}"))

    def do_refuse(self, node: str) -> None:
        self.do_lose(node, "Connection refused")

    def do_wait(self, time: str) -> None:
        end = self.clock.ticks + microseconds(time)
        while (delay := self.timers.delay_us()) is not None and self.clock.ticks + delay <= end:
            self.clock.ticks += delay
            self.clock.wall += delay
            for timer in self.timers.due():
                self._turn(timer)
        self.clock.ticks = end

    def do_hear(self, node: str) -> None:
        """Bytes arrive that are no whole frame."""
        self._link(node).count += 1

    def do_close(self, name: str = "") -> None:
        """The client, or one of its subscriptions."""
        if name:
            self.cores[name].close(partial(self._answered, name))
        else:
            self.router.close(Closed("the client is closed"))

    def do_nodes(self) -> None:
        """By which addresses the first session goes on, and which sessions there are."""
        self.lines.append("by " + ", ".join(str(each) for each in self.router.first.addresses))
        for session in self.router.sessions.values():
            self.lines.append(f"session to {session.target}: {session.state}")

    # --- what nodes say --------------------------------------------------------------------------

    def _received(self, link: Link, frame: Frame, payload: bytes) -> None:
        link.count += 1
        self._session(link).received(link.number, frame, memoryview(payload))

    def _from(self, node: str, kind: str, *rest: str, to: str = "", **said: str) -> None:
        link = self._link(node)
        payload = b""
        if kind == "notHere":
            there = f"{rest[0]}:1" if rest and "somewhere" not in rest else ""
            frame: Frame = frames.Failure(
                0, kind, "it is elsewhere", False, rest[0] if rest else "", there
            )
        elif kind == "nodes":
            described = [NodeDescription(node, node, at, "alive") for node, at in said.items()]
            frame = frames.NodesAre(0, tuple(described))
        elif kind == "leaders":  # of each partition in order; `-`: nobody is known to lead it
            led = ",".join(rest).split(",")
            named = [each for each in dict.fromkeys(led) if each != "-"]
            nodes = tuple(NodeAddress(each, f"{each}:1") for each in named)
            places = {each: at for at, each in enumerate(named)} | {"-": len(named)}
            frame = frames.LeadersAre(0, nodes, packed(places[each] for each in led))
        elif kind == "lists":  # indexes, each as name:partition,position,end of one partition
            frame = frames.Indexes(0, tuple(map(_index, rest)), said.get("next", ""))
        elif kind == "opens":
            frame = self.opens(*rest, **said)
        elif kind == "settles":  # all that it was asked
            for _ in list(link.unanswered):
                self._from(node, "Settled", refused="")
            return
        elif kind in ("delivers", "leases"):
            frame, payload = getattr(self, kind)(*rest, **said)
            self.lines.append(f"{len(payload)} bytes come")
        elif kind[0].islower():
            frame = frames.Failure(0, kind, rest[0] if rest else f"it is {kind}")
        else:
            if rest:  # the records of a batch; their offsets begin at `base`
                payload = stored([word.encode() for word in rest], int(said.pop("base", "0")))
            made = {name: self._value(KINDS[kind], name, text) for name, text in said.items()}
            frame = KINDS[kind](**{"request": 0, **made})
        if not isinstance(frame, UNASKED):
            frame.request = link.unanswered.pop(int(to) if to else 0)
        self._received(link, frame, payload)

    def _value(self, kind: type, name: str, text: str) -> Any:
        annotation = str(next(each.type for each in fields(kind) if each.name == name))
        if (name in PACKED and "bytes" in annotation.lower()) or "Packed" in annotation:
            return packed(int(number) for number in text.split(",") if number)
        if name == "feeder":
            return (NodeAddress(text, f"{text}:1"),)
        if annotation.startswith("tuple"):
            return ()
        if "int" in annotation:
            return int(text)
        if "bool" in annotation:
            return text == "yes"
        if "bytes" in annotation:
            return text.encode().ljust(16, b"\0")
        return text

    # --- requests with one answer ----------------------------------------------------------------

    def do_ask(self, name: str, kind: str, *, changes: str = "no", **said: str) -> None:
        made = {each: self._value(KINDS[kind], each, text) for each, text in said.items()}
        if kind in ("FindOffsets", "SeekIndex"):
            made["start"] = Start()
        frame = KINDS[kind](0, **made)
        asking = Asking(
            self.router, frame, partial(self._answered, name), repeatable=changes == "no"
        )
        self.asked[name] = asking, kind

    def _answered(self, name: str, answer: Frame | HocketError) -> None:
        said = answer if isinstance(answer, HocketError) else None
        words = error_words(said) if said is not None else type(answer).__name__
        if isinstance(answer, frames.Offsets) and not answer.request:  # made of several
            words = frame_words(answer, b"")
        elif isinstance(answer, frames.Indexes):
            words = "; ".join(map(_index_words, answer.indexes))
        self.lines.append(f"{name} is answered: {words}")

    def do_call(self, name: str, what: str, *words: str, **options: str) -> None:
        """A call as the faces make it: it checks what it is given, and reads its answer."""
        made = getattr(access if hasattr(access, what) else topics, what)
        call = made(*map(_argument, words), **{k: _argument(v) for k, v in options.items()})

        def told(answer: Frame | HocketError) -> None:
            outcome = call.outcome(answer)
            said = error_words(outcome) if isinstance(outcome, HocketError) else f"{outcome}"
            self.lines.append(f"{name} gets {said}")

        self.asked[name] = (
            Asking(self.router, call.frame, told, repeatable=not call.changes), what,
        )  # fmt: skip

    def do_too_slow(self, name: str, timeout: str = "5s") -> None:
        """The caller's time is over: what is raised."""
        seconds = microseconds(timeout) / 1e6
        core = self.cores.get(name)
        if isinstance(core, ProducerCore) and not core.is_open:
            error = timeouts.not_opened(core, "producer", seconds)
        elif isinstance(core, PublishCore):
            error = timeouts.unpublished(core, core.give_up(self.published[name].pop(0)), seconds)
        elif isinstance(core, ProducerCore):
            error = timeouts.undelivered(core, seconds)
        elif isinstance(core, Deciding):
            error = timeouts.undecided("commit", core.refusal, seconds)
        elif core is not None:
            error = timeouts.not_subscribed(core, core.may_be_opened, seconds)
        else:
            error = timeouts.unanswered(self.router, self.asked[name][0], seconds)
        self.lines.append(error_words(error))

    # --- producers -------------------------------------------------------------------------------

    def do_producer(self, name: str, topic: str, **options: str) -> None:
        made = {each: int(value) for each, value in options.items()}
        core = ProducerCore(
            self.router.first, topic, ProducerOptions(**{"linger_us": 0, **made}),
            partial(self._told, name),
        )  # fmt: skip
        self.cores[name] = core
        core.open()

    def carry_on(self, *lines: str) -> None:
        """Several commands in place of one."""
        for line in lines:
            self._turn(partial(self._command, line))

    def do_three(self, name: str) -> None:
        """A client and a producer with three batches under way, each of one record."""
        self.carry_on(
            "client a", "up a", f"producer {name} t linger_us=1000",
            "a> ProducerOpened handle=1 producer_id=i epoch=0 partitions=1 sequences=0",
            *(f"{each} {name} {number}" for number in range(3) for each in ("send", "linger")),
        )  # fmt: skip
        self.lines = [line for line in self.lines if "Push" in line]

    def do_linger(self, *_ignored: str) -> None:
        self.do_wait("1ms")

    def do_first_error(self, name: str) -> None:
        error = self.cores[name].first_error
        self.lines.append(error_words(error) if error is not None else "nothing is lost")

    def do_unacked(self, name: str) -> None:
        self.lines.append(f"{self.cores[name].unacked_bytes} bytes are not acknowledged")

    def do_publisher(self, name: str, topic: str) -> None:
        publications = Publications(self.router.first)
        self.cores[name] = core = publications.core(topic)
        core._settle = partial(self._told, name)
        core.new = publications.new  # type: ignore[attr-defined]

    def do_staging(self, name: str, topic: str, transaction: str = "x", number: str = "1") -> None:
        core = StagingCore(
            self.router.first, topic, ProducerOptions(linger_us=0), transaction, int(number)
        )
        self.cores[name] = core
        core.open()

    def do_send(self, name: str, *values: str, timeout: str = "30s", partition: str = "") -> None:
        core = self.cores[name]
        for value in values:
            waiter = None
            if hasattr(core, "new"):
                waiter = core.new(self.outbox.now_us, microseconds(timeout) / 1e6)
            record, size = checked(value.encode(), None, None, None, waiter)
            self.published.setdefault(name, []).append(record)
            gathering = core.gathering_of(None, int(partition) if partition else None)
            if not core.offer(gathering, record, size):
                self.lines.append(f"no room for {value}")

    def do_end(self, name: str) -> None:
        self.cores[name].end(Closed(f"{name} is closed"))

    def do_decide(self, name: str, core: str, kind: str) -> None:
        staging = self.cores[core]
        frame: Any = (
            frames.CommitTransaction(0, *staging.name, participants_of([staging]))
            if kind == "commit"
            else abort_of(*staging.name, producers_of([staging]))
        )
        deciding = self.cores[name] = Deciding(self.router.first, frame, staging.topic)
        put = deciding.reply.put

        def told(answer: Frame | HocketError) -> None:
            put(answer)
            self._answered(name, answer)

        deciding.reply = _Told(told)  # type: ignore[assignment]

    def do_cut(self, name: str) -> None:
        """What is gathered is pushed now."""
        self.cores[name].cut_all()

    def do_cancel(self, name: str) -> None:
        (self.cores.get(name) or self.asked[name][0]).cancel()

    def do_whole(self, name: str) -> None:
        self.lines.append(f"staged: {'yes' if self.cores[name].is_staged() else 'not yet'}")


def _argument(text: str) -> Any:
    named = {"yes": True, "no": False, "none": None}
    return named[text] if text in named else int(text) if text.isdigit() else text


def _index(text: str) -> IndexDescription:
    name, _, places = text.partition(":")
    partition, position, end = map(int, places.split(","))
    return IndexDescription(name, "own", False, (IndexPartition(partition, position, end, False),))


def _index_words(index: IndexDescription) -> str:
    places = " ".join(f"{each.partition}:{each.position}" for each in index.partitions)
    return f"{index.name} lags {index.lag} ({places})"


class _Told:
    """A reply that says at once what was put."""

    def __init__(self, put: Callable[[Frame | HocketError], None]) -> None:
        self.put = put
