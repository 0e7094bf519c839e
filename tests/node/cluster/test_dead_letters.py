"""Dead letters that another node holds: one for each message, whichever node dies when."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from hocket import frames
from hocket.core.placement.storing import BatchStored, StoreBatch, StoredBatch
from hocket.core.session.session import DEAD_LETTERS
from hocket.errors import CorruptData, HocketError
from hocket.frames import packed, unpacked
from hocket.model import Start
from hocket.node.background import dead_letters
from hocket.node.background.dead_letters import Unit
from hocket.node.background.storing import Storing
from hocket.wire.batch import encode
from tests.support.node.cluster import SECOND, Asking
from tests.support.node.spread import Far, Spread

LONG = os.environ.get("HOCKET_STRESS") == "long"
COUNT = 6
TOPIC, DEAD = "orders", "orders" + DEAD_LETTERS


class Dying(Spread):
    """Messages are on node 1, their dead letters on node 2; node 0 is the root."""

    def __init__(self, seed: str = "dying", **options: Any) -> None:
        super().__init__(seed, **options)
        self.put_on(1)
        Asking(self, 0).create(TOPIC)
        self.put_on(2)
        Asking(self, 0).create(DEAD)
        self.settle()
        for number in range(COUNT):
            record = encode([b"%d" % number], timestamps=self.now_us)
            Asking(self, 1).ask(frames.Publish, record, topic=TOPIC, partition=0)

    def _watch_links(self) -> None:
        send = self.links.send

        def sending(sender, to, message):
            if isinstance(message, StoreBatch | BatchStored):
                self.pass_by(f"{type(message).__name__} is sent")
            send(sender, to, message)

        self.links.send = sending  # type: ignore[method-assign]

    def _watch(self, name: str) -> None:
        """Points are also what the log of the node says, and what dead letters do with it."""
        machine = next(each for each in self.machines if each.name == name)
        node = machine.node.node  # type: ignore[union-attr]
        durable, go_on = node.log_durable, node._dead_letters._go_on

        def was_durable(through):
            if name != "n0" and any(0 < group < 100 for group in through):
                self.pass_by(f"{name} is durable")
            durable(through)

        def goes_on(number, unit):
            self.pass_by("a unit goes on")
            go_on(number, unit)

        node.log_durable = was_durable
        node._dead_letters._go_on = goes_on

    def reject_all(self, count: int = COUNT) -> None:
        """Have every message given up, one after the other, whatever happens to the node."""
        for offset in range(count):
            self.patiently(1, lambda far, offset=offset: self._reject(far, offset))

    def _reject(self, far: Far, offset: int) -> frames.Frame | None:
        opened = far.ask(
            frames.OpenSubscription, topic=TOPIC, index="i", mode="shared",
            consumer=b"%016d" % self.now_us, prefetch=COUNT, credit_bytes=1 << 20,
            start=Start("earliest"),
        )  # fmt: skip
        if isinstance(opened, frames.Failure):
            return opened
        self.run(2_500_000 if self.killed else 200_000)  # withheld after a restart
        ranges = packed([0, offset, offset + 1])
        settled = far.ask(frames.Settle, handle=opened.handle, action="reject", ranges=ranges)
        far.ask(frames.CloseHandle, handle=opened.handle)
        return settled

    def letters(self) -> list[tuple[bytes, bytes]]:
        """Value and offset at the source of each dead letter, as they stand on node 2."""
        found: list[tuple[bytes, bytes]] = []
        hosted = self.hosted(0, DEAD)
        log = self.machines[2].node.node._wiring.log  # type: ignore[union-attr]
        at = hosted.core.start
        while at < hosted.core.high_watermark:
            told: list[Any] = []
            read = log.read(
                hosted.group, at, bytes_max=1 << 20, end_offset=1 << 40, done=told.append
            )
            if read is None:  # the disk is asked
                self.until(lambda told=told: bool(told), 10, "the log is read")
                read = told[0]
            for batch in dead_letters_of(read):
                rows = zip(batch.values(), batch.headers(), strict=True)
                found += ((value, headers["hocket-dlq-offset"]) for value, headers in rows)
                at = batch.end_offset
        return found

    def is_settled_all(self) -> bool:
        if self.machines[1].node is None or self.machines[2].node is None:
            return False
        return self.given_up == COUNT

    @property
    def given_up(self) -> int:
        """Up to where all messages are settled."""
        share = self.hosted(0, TOPIC).core.shares.get("i")
        return 0 if share is None else share.start


def dead_letters_of(read):
    for piece in read.slices:
        for position, _ in dead_letters.iterate_entries(piece):
            yield dead_letters.parse(piece, position)


def check(nodes: Dying) -> None:
    nodes.until(nodes.is_settled_all, 90, "all are given up")
    nodes.run(3 * SECOND)
    expected = Counter((b"%d" % n, b"%d" % n) for n in range(COUNT))
    assert Counter(nodes.letters()) == expected


def test_those_of_a_partition_keep_their_order_though_the_first_has_to_be_tried_again():
    """As when nobody leads the dead letters yet: those behind it must not be quicker."""
    nodes = Dying()
    storing = nodes.machines[1].node.node.storing  # type: ignore[union-attr]
    store, refused = storing.store, []

    def refuse_the_first(topic, number, records, entry, done):
        if refused:
            store(topic, number, records, entry, done)
        else:
            refused.append(entry)
            done(HocketError("nobody leads it yet"))

    storing.store = refuse_the_first
    client = Asking(nodes, 1)
    opened = client.ask(
        frames.OpenSubscription, topic=TOPIC, index="i", mode="shared", consumer=b"c" * 16,
        prefetch=COUNT, credit_bytes=1 << 20, start=Start("earliest"),
    )  # fmt: skip
    nodes.run(SECOND // 5)
    for offset in range(COUNT):
        ranges = packed([0, offset, offset + 1])
        client.begin(frames.Settle, handle=opened.handle, action="reject", ranges=ranges)
        nodes.run(5_000)
    check(nodes)
    assert refused
    assert [int(offset) for _, offset in nodes.letters()] == list(range(COUNT))


class Refusing(Dying):
    """The dead letters are refused until `store` is put back."""

    def __init__(self) -> None:
        super().__init__()
        node = self.machines[1].node.node  # type: ignore[union-attr]
        self.letters_of_1, self.storing = node._dead_letters, node.storing
        self.store = self.storing.store
        self.storing.store = lambda *args: args[-1](HocketError("there is no room"))
        self._reject(Far(self, 1), 0)
        self.until(lambda: bool(self.letters_of_1._put_off_units), 10, "it is put off")


def test_dead_letters_that_wait_for_long_are_spoken_of_again(caplog, monkeypatch):
    """One that can never be stored holds up all behind it: one line in a year would not be read."""
    monkeypatch.setattr(dead_letters, "REMIND_US", 10 * SECOND)
    nodes = Refusing()
    nodes.run(5 * SECOND)
    assert caplog.text.count("wait: there is no room") == 1
    nodes.run(dead_letters.REMIND_US)
    assert caplog.text.count("and those behind them of index 'i' wait: there is no room") == 2


def test_a_batch_that_was_set_aside_and_not_stored_is_set_aside_again_by_who_leads_again(
    monkeypatch,
):
    def cannot(*_):
        raise CorruptData("it cannot be opened")

    with monkeypatch.context() as patch:
        patch.setattr(dead_letters, "parse", cannot)
        nodes = Refusing()
        hosted = nodes.hosted(0, TOPIC)
        nodes.letters_of_1.leave(hosted)  # another node led for a moment, and came no further
        nodes.storing.store = nodes.store
        nodes.letters_of_1.take(hosted, "i", hosted.core.shares["i"].dying)
        nodes.until(lambda: nodes.given_up == 1, 10, "it is given up")
    assert [int(offset) for _, offset in nodes.letters()] == [0]


def test_a_dead_letter_is_stored_on_the_node_that_holds_its_partition():
    nodes = Dying()
    nodes.reject_all()
    check(nodes)
    assert nodes.given_up == COUNT


def test_while_the_node_of_the_dead_letters_is_down_messages_are_not_given_up():
    nodes = Dying()
    nodes.crash(2)
    nodes._reject(Far(nodes, 1), 0)
    nodes.run(10 * SECOND)
    assert nodes.given_up == 0
    nodes.start(2)
    nodes.until(lambda: nodes.given_up == 1, 30, "it is stored")
    assert nodes.letters() == [(b"0", b"0")]


def test_what_a_node_that_does_not_hold_the_dead_letters_says_of_them_counts_for_nothing():
    nodes = Dying()
    nodes.crash(2)
    nodes._reject(Far(nodes, 1), 0)
    storing = nodes.machines[1].node.node.storing  # type: ignore[union-attr]
    nodes.until(lambda: bool(storing._sent), 10, "it is sent")
    (number,) = storing._sent
    for outcome in ("stored", "gone", "refused"):
        lie = BatchStored(number, outcome, "storageFull", "so they say")
        nodes.machines[1].turn(lambda lie=lie: storing.heard("n0", lie))
    assert list(storing._sent) == [number]
    assert nodes.given_up == 0
    nodes.start(2)
    nodes.until(lambda: nodes.given_up == 1, 30, "it is stored")
    assert nodes.letters() == [(b"0", b"0")]


def test_dead_letters_that_nobody_takes_hold_up_no_others():
    nodes = Dying()
    nodes.put_on(1)
    names = [f"other{n}" for n in range(dead_letters.AT_ONCE + 1)]
    for name in names:
        Asking(nodes, 0).create(name)
        nodes.put_on(2)
        Asking(nodes, 0).create(name + DEAD_LETTERS)
        nodes.put_on(1)
    Asking(nodes, 0).create("here")
    Asking(nodes, 0).create("here" + DEAD_LETTERS)
    nodes.settle()
    nodes.crash(2)
    client = Asking(nodes, 1)
    for name in (*names, "here"):
        client.ask(frames.Publish, encode([b"x"], timestamps=nodes.now_us), topic=name, partition=0)
        opened = client.ask(
            frames.OpenSubscription, topic=name, index="i", mode="shared", consumer=b"c" * 16,
            prefetch=COUNT, credit_bytes=1 << 20,
        )  # fmt: skip
        nodes.run()
        ranges = packed([0, 0, 1])
        client.ask(frames.Settle, handle=opened.handle, action="reject", ranges=ranges)
    nodes.until(
        lambda: nodes.hosted(0, "here.dlq").core.high_watermark == 1, 10, "the one that is here"
    )


def test_dead_letters_whose_topic_is_deleted_meanwhile_get_another_one():
    nodes = Dying()
    nodes.crash(2)
    nodes._reject(Far(nodes, 1), 0)
    nodes.run()
    nodes.put_on(0)
    Asking(nodes, 1).done(frames.DeleteTopic, topic=DEAD)

    def is_made() -> bool:
        topic = nodes.root.node.node._wiring.catalogue.topics.get(DEAD)  # type: ignore[union-attr]
        return topic is not None and nodes.hosted(0, DEAD).core.high_watermark == 1

    nodes.until(is_made, 20, "it is stored in the new topic")


def test_a_message_is_delivered_again_though_its_dead_letter_is_elsewhere():
    nodes = Dying()
    nodes.reject_all()
    check(nodes)
    client = Asking(nodes, 1)
    fields = {
        "topic": TOPIC, "partition": 0, "index": "i", "dead_partition": 0,
        "offsets": packed([2, 4]), "letters": packed([2, 4]),
    }  # fmt: skip
    answer = client.ask(frames.Revive, **fields)
    assert isinstance(answer, frames.Offsets)
    assert unpacked(answer.offsets) == [2, 4]
    again = client.ask(frames.Revive, **fields)  # they are used up
    assert isinstance(again, frames.Offsets)
    assert unpacked(again.offsets) == []
    beyond = {**fields, "offsets": packed([1]), "letters": packed([COUNT])}
    assert client.refused(frames.Revive, **beyond).code == "outOfRange"
    nodes.crash(2)
    away = client.refused(
        frames.Revive, **{**fields, "offsets": packed([1]), "letters": packed([1])}
    )
    assert away.code == "busy"
    assert "does not answer" in away.message


def test_a_node_stores_for_others_only_what_is_theirs_to_store():
    nodes = Dying()
    nodes.settle()
    storing: Storing = nodes.machines[2].node.node.storing  # type: ignore[union-attr]
    told: list[BatchStored] = []

    class Others:
        def send(self, node: str, message: Any) -> None:
            assert node == "n1"
            told.append(message)

        def tell_all(self, message: Any) -> None: ...

    storing.others = Others()
    group = nodes.hosted(0, DEAD).group
    foreign = encode([b"x"], timestamps=1, producer_id=b"f" * 16, sequence=0)
    for number, (where, data) in enumerate(
        [(group, foreign), (group, b"nonsense"), (group + 1000, foreign), (group, foreign * 2)]
    ):
        storing.heard("n1", StoreBatch(number, where, (StoredBatch(0, 1, bytes(data)),)))
    assert [each.outcome for each in told] == ["refused", "refused", "not_mine", "refused"]
    Asking(nodes, 0).done(frames.DeleteTopic, topic=DEAD)
    nodes.settle()
    storing.heard("n1", StoreBatch(9, group, (StoredBatch(0, 1, foreign),)))
    assert told[-1] == BatchStored(9, "gone")


# --- the death of each node at each step ---------------------------------------------------------


def life(kill_at: int | None, victim: int) -> Dying:
    nodes = Dying(f"dying/{kill_at}", victim=victim)
    nodes.begin_points()
    nodes.kill_at = kill_at
    nodes.reject_all()
    check(nodes)
    return nodes


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", [1, 2])
def test_each_message_has_one_dead_letter_whichever_node_dies_at_whichever_step(victim: int):
    points = life(None, victim).points
    assert {"StoreBatch is sent", "BatchStored is sent", "a unit goes on"} <= set(points)
    for kill_at in range(0 if LONG else victim - 1, len(points), 1 if LONG else 11):
        try:
            assert life(kill_at, victim).killed
        except AssertionError as error:
            raise AssertionError(f"node {victim} dies at step {kill_at}") from error


# --- planted bugs --------------------------------------------------------------------------------


def give_up_before_it_is_stored(monkeypatch):
    store = Storing.store

    def at_once(self, topic, number, records, entry, done):
        store(self, topic, number, records, entry, lambda _error: None)
        done(None)

    monkeypatch.setattr(Storing, "store", at_once)
    monkeypatch.setattr(Storing, "tick", lambda self, now_us: None)


def a_new_producer_each_time(monkeypatch):
    made, numbers = Unit.producer_id, count()

    def another(self, start, end, what=""):
        return made(self, start, end, what)[:8] + next(numbers).to_bytes(8, "big")

    monkeypatch.setattr(Unit, "producer_id", another)


def not_here_is_gone(monkeypatch):
    """And what is gone needs no dead letter."""
    heard = Storing.heard

    def hears(self, node, message):
        if isinstance(message, BatchStored) and message.outcome == "refused":
            message = BatchStored(message.request, "stored")
        heard(self, node, message)

    monkeypatch.setattr(Storing, "heard", hears)
    monkeypatch.setattr(
        Storing, "_serve",
        lambda self, node, message: self._answer(node, message.request, "refused", HocketError()),
    )  # fmt: skip


def answer_before_it_is_durable(monkeypatch):
    serve = Storing._serve

    def serves(self, node, message):
        serve(self, node, message)
        if self._wiring.partitions.get(message.group) is not None:
            self._answer(node, message.request, "stored")

    monkeypatch.setattr(Storing, "_serve", serves)


def never_send_again(monkeypatch):
    monkeypatch.setattr(Storing, "tick", lambda self, now_us: None)


BUGS = [  # who dies, and the step with which it was found last: the search begins there
    (give_up_before_it_is_stored, 2, 0),
    (a_new_producer_each_time, 1, 2),
    (not_here_is_gone, 2, 0),
    (answer_before_it_is_durable, 2, 6),
    (never_send_again, 2, 0),
]


@pytest.mark.parametrize(
    ("bug", "victim", "first"), BUGS, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_planted_bug_is_found(bug: Callable[..., None], victim: int, first: int, monkeypatch):
    points = len(life(None, victim).points)
    bug(monkeypatch)
    for kill_at in (*range(first, points), *range(first)):
        try:
            life(kill_at, victim)
        except AssertionError:
            return
    raise AssertionError("the bug was not found")
