from __future__ import annotations

from hocket.client.connection.wakeups import Reply, WakeUps


class Woken:
    count = 0

    def __call__(self) -> None:
        self.count += 1


def test_wake_ups_are_called_once_in_order():
    wake_ups, called = WakeUps(), []
    wakes = [lambda n=n: called.append(n) for n in range(4)]
    for wake in wakes:
        wake_ups.add(wake)
    wake_ups.discard(wakes[1])
    wake_ups.discard(wakes[1])
    assert wake_ups
    wake_ups.wake_all()
    wake_ups.wake_all()
    assert called == [0, 2, 3]
    assert not wake_ups


def test_one_that_waits_again_while_it_is_woken_waits_for_the_next_time():
    wake_ups, called = WakeUps(), []

    def wake():
        called.append(len(called))
        wake_ups.add(wake)

    wake_ups.add(wake)
    wake_ups.wake_all()
    assert called == [0]
    wake_ups.wake_all()
    assert called == [0, 1]


def test_a_reply_wakes_its_waiter():
    reply, woken = Reply(), Woken()
    reply.wake_ups.add(woken)
    assert reply.get() is None
    reply.put("here")
    assert (reply.get(), woken.count) == ("here", 1)
