"""Seeded stress: random ends from both sides, hundreds of threads, ten thousand queues.

Each test prints its seed; HOCKET_SEED=<seed> replays it, HOCKET_STRESS=long runs many more.
"""

import asyncio
import os
import random
import sys
import threading

import pytest

from hocket.errors import Aborted, Closed
from tests.support.queues.listeners import Accepts, Connects, Echo, History
from tests.support.queues.worlds import PORT, World, numbered
from tests.support.threads import LONG, until

pytestmark = pytest.mark.stress

SEEDS = (
    [int(os.environ["HOCKET_SEED"])] if "HOCKET_SEED" in os.environ else range(40 if LONG else 3)
)


@pytest.fixture(
    params=[("full-event", 1), ("full-event", 3), ("mixed", 1)],
    ids=["full-event", "full-event-threads", "mixed"],
)
def world(request):
    kind, threads = request.param
    with World(kind, threads=threads) as made:
        yield made


@pytest.fixture(params=SEEDS, ids=lambda seed: f"seed-{seed}")
def rng(request):
    print(f"replay with HOCKET_SEED={request.param}")  # noqa: T201 - shown when the test fails
    return random.Random(request.param)


@pytest.fixture(autouse=True)
def hasty_threads():
    """Threads take turns every 20 us instead of every 5 ms, so that races have their chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-5)
    yield
    sys.setswitchinterval(before)


class Ledger(History):
    """Counts on both sides of one end: what send took there, what arrived there, how it ended."""

    def __init__(self, queue):
        super().__init__()
        self.queue = queue
        self.accepted = {}  # sending thread -> what send took from it, in order

    def send(self, sender, number, size):
        message = b"%d:%d:" % (sender, number) + bytes(size)
        if self.queue.send(message):
            self.accepted.setdefault(sender, []).append(message)
            return True
        return False


def check_ledgers(sender, receiver):
    """Every message that `send` took at one end has arrived at the other or is reported."""
    lost = sender.reason.undelivered if sender.reason else []
    assert (receiver.reason.unread if receiver.reason else []) == lost
    together = receiver.messages + lost
    for name, accepted in sender.accepted.items():
        prefix = b"%d:" % name
        assert [message for message in together if message.startswith(prefix)] == accepted
    assert len(together) == sum(map(len, sender.accepted.values()))
    assert receiver.events[-1][0] == "closed"
    assert type(sender.reason) is type(receiver.reason)


def ledger_pair(world, client, server):
    mine, theirs = world.connected(client, server)
    ledgers = Ledger(mine), Ledger(theirs)
    for ledger in ledgers:
        ledger.queue.set_listener(ledger)
    return ledgers


def test_random_ends_from_both_sides_under_load_account_for_every_message(world, rng):
    client, server = world.brokers(messages_max=rng.choice([2, 16, 1024]))
    ends = [ledger for _ in range(6) for ledger in ledger_pair(world, client, server)]
    start = threading.Barrier(2 * len(ends))

    def work(ledger, sender, plan):
        start.wait(10)
        for number, (size, act) in enumerate(plan):
            ledger.send(sender, number, size)
            if act is not None:
                getattr(ledger.queue, act)()

    def plan():
        acts = (
            [None] * 300
            + ["pause", "resume"] * rng.randrange(3)
            + rng.choice([["close"], ["abort"], ["close", "abort"], []])
        )
        rng.shuffle(acts)
        return [(rng.choice([0, 0, 10, 1000, 70_000]), act) for act in acts]

    workers = [world.thread(work, ledger, sender, plan()) for ledger in ends for sender in (0, 1)]
    for worker in workers:
        worker.result(timeout=60)
    for ledger in ends:
        ledger.queue.resume()
        ledger.queue.close()
    until(lambda: all(ledger.reasons for ledger in ends), timeout=30)
    world.settle()
    for mine, theirs in zip(ends[::2], ends[1::2], strict=True):
        check_ledgers(mine, theirs)
        check_ledgers(theirs, mine)
    until(lambda: client.queues == server.queues == [])


def test_hundreds_of_threads_at_one_queue(world, rng):
    mine, theirs = world.pair(messages_max=8)
    count = 400 if LONG else 200
    each = 10

    def send(name):
        for number in range(each):
            mine.send_wait(b"%d:%d" % (name, number), timeout=60)

    def receive(got):
        for message in theirs:
            got.append(message)

    shares = [[] for _ in range(count // 10)]
    readers = [world.thread(receive, share) for share in shares]
    senders = [world.thread(send, name) for name in range(count)]
    for sender in senders:
        sender.result(timeout=60)
    mine.close()
    for reader in readers:
        reader.result(timeout=60)
    everything = sorted(message for share in shares for message in share)
    assert everything == sorted(b"%d:%d" % (n, k) for n in range(count) for k in range(each))
    for share in shares:  # whatever one reader saw of one sender, it saw in order
        last = {}
        for message in share:
            name, number = map(int, message.split(b":"))
            assert last.get(name, -1) < number
            last[name] = number


def test_every_refusal_is_followed_by_a_writable_whoever_else_sends(world, rng):
    """Threads that trust `writable`: each waits for one after its own refusal before it goes on."""
    mine, theirs = world.pair(messages_max=rng.choice([1, 2, 5]))
    history, other = History(), History()
    mine.set_listener(history)
    theirs.set_listener(other)
    count, each = 6, 200

    def send(name):
        for number in range(each):
            while True:
                before = history.writables
                if mine.send(b"%d:%d" % (name, number) + bytes(2000)):
                    break
                until(lambda before=before: history.writables > before, what="a writable")

    for sender in [world.thread(send, name) for name in range(count)]:
        sender.result(timeout=60)
    until(lambda: len(other.messages) == count * each, timeout=30)
    for name in range(count):
        got = [m[:-2000] for m in other.messages if m.startswith(b"%d:" % name)]
        assert got == [b"%d:%d" % (name, number) for number in range(each)]


def test_readers_listeners_and_pauses_taking_turns_share_every_message_once(world, rng):
    mine, theirs = world.pair()
    messages = numbered(1500)
    order = []
    sender = world.thread(lambda: [mine.send_wait(m, timeout=20) for m in messages])
    listener = History(on_received=order.append)
    while len(order) < len(messages):
        act = rng.choice(["listen", "pause", "receive", "wait"])
        if act == "listen":
            theirs.set_listener(listener)
            theirs.resume()
            goal = min(len(messages), len(order) + rng.randrange(40))
            until(lambda goal=goal: len(order) >= goal)
        elif act == "pause":
            theirs.pause()
        else:
            theirs.set_listener(None)
            told = threading.Event()  # behind the delivery that may be under way, on its thread
            assert theirs._pump.post_if_open(told.set)
            assert told.wait(20)
            for _ in range(rng.randrange(30)):
                if len(order) == len(messages):
                    break
                message = theirs.receive_wait(timeout=10) if act == "wait" else theirs.receive()
                if message is not None:
                    order.append(message)
    sender.result()
    assert order == messages


def test_listeners_of_a_sender_taking_turns_hear_of_every_message_once(world, rng):
    mine, theirs = world.pair()
    messages = numbered(3000)
    order = []
    finished = threading.Event()

    def replace_listeners():
        while not finished.is_set():
            mine.set_listener(History(on_sent=order.append))

    mine.set_listener(History(on_sent=order.append))
    theirs.set_listener(History())
    replacing = world.thread(replace_listeners)
    for message in messages:
        mine.send_wait(message, timeout=20)
    finished.set()
    replacing.result()
    until(lambda: len(order) >= len(messages))
    assert order == messages


def test_a_sender_that_listens_now_and_then_disturbs_nobody(world, rng):
    mine, theirs = world.pair(messages_max=64)
    messages = numbered(3000)
    finished = threading.Event()

    def listen_now_and_then():
        while not finished.is_set():
            mine.set_listener(History())
            mine.set_listener(None)

    listening = world.thread(listen_now_and_then)
    sender = world.thread(lambda: [mine.send_wait(m, timeout=20) for m in messages])
    assert [theirs.receive_wait(timeout=20) for _ in messages] == messages
    sender.result()
    finished.set()
    listening.result()


def test_the_reason_is_complete_for_whoever_is_woken_by_an_abort(world, rng):
    client, server = world.brokers()
    for round_number in range(60):
        mine, theirs = world.connected(client, server)
        sent = numbered(rng.randrange(1, 50))
        for message in sent:
            mine.send(message)

        def wait(queue=mine):
            try:
                queue.receive_wait(timeout=20)
            except Closed as closed:
                return list(closed.__cause__.undelivered)

        waiting = [world.thread(wait) for _ in range(3)]
        if round_number % 2:
            world.settle()
        rng.choice([mine, theirs]).abort()
        assert [waiter.result() for waiter in waiting] == [sent] * 3


@pytest.mark.parametrize("act", ["close", "stop"])
def test_brokers_and_pumps_that_die_under_load_account_for_every_message(rng, act):
    for kind in ("full-event", "mixed"):
        with World(kind) as world:
            client, server = world.brokers(messages_max=64)
            ends = [ledger for _ in range(4) for ledger in ledger_pair(world, client, server)]

            def work(ledger, sender):
                number = 0
                while not ledger.queue.closed:
                    ledger.send(sender, number, 0)
                    number += 1

            workers = [world.thread(work, ledger, 0) for ledger in ends]
            goal = rng.choice([0, 10, 500])
            until(lambda goal=goal, ends=ends: len(ends[1].messages) >= goal)
            if act == "close":
                rng.choice([client, server]).close()
            else:
                world.server_pump.stop(drain=rng.choice([True, False]))
            for worker in workers:
                worker.result(timeout=30)
            told = ends if act == "close" else ends[::2]  # a pump that died tells nobody
            until(lambda told=told: all(ledger.reasons for ledger in told))
            for here, there in zip(ends[::2], ends[1::2], strict=True):
                assert type(here.reason) is Aborted
                together = there.messages + here.reason.undelivered
                assert together == here.accepted.get(0, [])
                together = here.messages + here.reason.unread
                assert together == there.accepted.get(0, [])


def test_coroutines_by_the_hundred_and_random_ends(world, rng):
    client, server = world.brokers(messages_max=4)
    server.bind(PORT, Accepts(Echo))
    count = 300 if LONG and not world.mixed else 60

    async def one(number, seed):
        chance = random.Random(seed)
        queue = await client.connect_async("server", PORT, timeout=30)
        sent, got = [], []
        for turn in range(chance.randrange(1, 20)):
            message = b"%d:%d" % (number, turn)
            await queue.send_async(message, timeout=30)
            sent.append(message)
            if chance.random() < 0.7:
                got.append(await queue.receive_async(timeout=30))
        if chance.random() < 0.5:
            while len(got) < len(sent):
                got.append(await queue.receive_async(timeout=30))
            queue.close()
            got += [message async for message in queue]
            assert got == sent
        else:
            queue.abort()
            with pytest.raises(Closed):
                await queue.receive_async(timeout=30)
            assert got == sent[: len(got)]
        return len(got)

    async def main():
        work = [one(number, rng.random()) for number in range(count)]
        return await asyncio.gather(*work)

    totals = asyncio.run(main())
    assert len(totals) == count
    until(lambda: client.queues == server.queues == [])


def test_ten_thousand_queues_on_one_full_event_broker():
    count = 10_000
    with World("full-event") as world:
        client, server = world.brokers()
        threads = threading.active_count()
        accepts = Accepts(Echo)
        histories = {}

        def heard(queue):
            histories[queue] = History()
            return histories[queue]

        connects = Connects(heard)
        server.bind(PORT, accepts)
        for _ in range(count):
            client.connect("server", PORT, connects)
        until(lambda: len(connects.answers) == len(accepts.queues) == count, timeout=60)
        assert threading.active_count() == threads  # no thread but the pumps'
        assert len({queue.local_port for queue in server.queues}) == count
        for queue in connects.queues:
            assert queue.send(b"%d" % queue.local_port) is True
        until(lambda: all(history.messages for history in histories.values()), timeout=60)
        for queue, history in histories.items():
            assert history.messages == [b"%d" % queue.local_port]
        for queue in connects.queues:
            queue.close()
        until(lambda: client.queues == server.queues == [], timeout=60)
        world.settle()
        assert all(history.reasons == [None] for history in histories.values())
