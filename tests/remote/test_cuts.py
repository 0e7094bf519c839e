"""A network that breaks in the middle: what was not taken is listed on both sides, and whatever
was under way comes at most once, and never after it was listed as surely not taken."""

import random
import threading
import time

import pytest

from hocket.addresses import Address
from hocket.errors import Aborted
from hocket.local import EventPump, QueueBroker
from tests.remote.test_kills import Recorder
from tests.support.remote.proxy import Proxy
from tests.support.remote.served import ServedNode
from tests.support.remote.talker import PORT, Meeting
from tests.support.threads import LONG, until

ROUNDS = 20 if LONG else 2
CUTS = ["reset", "dropped", "stopped", "stopped for a while"]


class Cut:
    """Two queue brokers that talk over a proxy: between the processes, or before the node."""

    def __init__(self, node, proxy, pump, **limits):
        through_node = node.way == "node"
        if through_node:
            proxy.towards(node.address.port)
            self.owning = node.manager()
            self.calling = node.manager(addresses=(Address("127.0.0.1", proxy.port),))
        else:
            self.owning = node.manager(listen="127.0.0.1:0", advertise=f"127.0.0.1:{proxy.port}")
            self.calling = node.manager()
        self.owner = QueueBroker("owner", pump, self.owning, messages_max=64, **limits)
        if not through_node:
            proxy.towards(self.owning._listener.getsockname()[1])
        self.caller = QueueBroker("caller", pump, self.calling, messages_max=64)

    def meet(self):
        accepts, connects = Meeting(), Meeting()
        self.owner.bind(PORT, accepts)
        self.caller.connect("owner", PORT, connects)
        assert connects.met.wait(30)
        assert connects.reason is None
        assert accepts.met.wait(30)
        return [Recorder(connects.queue), Recorder(accepts.queue)]

    def close(self):
        for each in (self.calling, self.owning):
            each.close()


@pytest.mark.parametrize("way", ["direct", "node"])
@pytest.mark.parametrize("how", CUTS)
def test_whatever_a_cut_leaves_untaken_is_listed_on_both_sides(way, how):
    for seed in range(ROUNDS if how in ("reset", "dropped") else max(1, ROUNDS // 10)):
        one_cut(way, how, random.Random(f"{way}/{how}/{seed}"))


def one_cut(way, how, rng):
    with ServedNode(way) as node, Proxy() as proxy, EventPump() as pump:
        world = Cut(node, proxy, pump)
        try:
            sides = world.meet()
            talking = [threading.Thread(target=each.talk) for each in sides]
            for each in talking:
                each.start()
            enough = rng.choice([0, 1, 10, 300])
            until(lambda: all(len(each.taken) >= enough for each in sides))
            time.sleep(rng.random() * 0.02)  # a random moment is what is tested here
            if how == "reset":
                proxy.reset()
            elif how == "dropped":
                proxy.drop()
                time.sleep(rng.random() * 0.05)
                proxy.reset()
            else:
                proxy.stop()
                first = rng.choice(sides)
                first.queue.abort()  # which waits for an answer, for some seconds
                assert first.ended.is_set() or first.ended.wait(30)
                if how == "stopped for a while":
                    proxy.go_on()
                else:
                    proxy.reset()
            for each in sides:
                assert each.ended.wait(30)
            for each in talking:
                each.join(30)
            account(*sides)
            account(*reversed(sides))
        finally:
            world.close()


def account(sender, receiver):
    """Every message that the sender's queue took has one fate, and both sides know it."""
    reason, theirs = sender.reason, receiver.reason
    assert isinstance(reason, Aborted)
    assert isinstance(theirs, Aborted)
    count = len(sender.accepted)
    undelivered = [int(message) for message in reason.undelivered]
    in_doubt = [int(message) for message in reason.in_doubt]
    unread = [int(message) for message in theirs.unread]
    # The receiver's: in order, each once; what it did not take it lists.
    assert receiver.taken + unread == list(range(len(receiver.taken) + len(unread)))
    # The sender's: what it does not list was taken; what was not taken it lists.
    assert undelivered == list(range(count - len(undelivered), count))
    surely_taken = count - len(undelivered)
    assert undelivered[: len(in_doubt)] == in_doubt
    assert surely_taken <= len(receiver.taken) <= surely_taken + len(in_doubt)
    assert len(receiver.taken) + len(unread) <= count
