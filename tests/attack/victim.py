"""The victim: produces, consumes and commits all the while, and knows what must come of it.

Every round sends numbered records to each partition, as a producer and by one-off publishes, waits
until they are stored, receives them on its index, and commits. What others have written under its
name, or into its topic, is no part of that, and is passed over.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict

import hocket
from hocket.errors import HocketError
from tests.attack.place import PARTITIONS, VICTIM, Place

INDEX = "billing"
OWN = b"v/"
PAUSE_SECONDS = 0.005  # between rounds: a thief needs a moment in which it knows what comes next
QUIET_ROUNDS = 5  # before the attack begins, to compare with
RECORDS = 8  # of a producer in one round and partition
# What a round may take at most. A quiet one takes some milliseconds; on a machine whose processors
# are all at work on attackers, and which runs other suites besides, a second is nothing unusual.
ROUND_SECONDS_MAX = 10.0


class Victim:
    """Works in a thread of its own while it is entered; `verdict` says what is wrong."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.sent: dict[int, list[bytes]] = defaultdict(list)  # by partition, in order
        self.received: dict[int, list[bytes]] = defaultdict(list)
        self.quiet_seconds: list[float] = []
        self.seconds: list[float] = []
        self.passed_over = 0  # records of others, in its topic
        self.trouble: list[str] = []
        self._stopping = threading.Event()
        self._working = threading.Event()
        self._under_attack = threading.Event()
        self._thread = threading.Thread(target=self._live, name="victim")

    def __enter__(self) -> Victim:
        self._thread.start()
        self._working.wait(60)
        self._under_attack.set()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._thread.is_alive():
            self.trouble.append("it hangs")

    # --- its life --------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            with (
                self._place.connect("vic") as client,
                client.producer(VICTIM, linger=0) as producer,
                client.subscribe(VICTIM, index=INDEX, start="earliest") as subscription,
            ):
                while not self._stopping.wait(PAUSE_SECONDS):
                    began = time.monotonic()
                    self._round(client, producer, subscription)
                    under_attack = self._under_attack.is_set()
                    times = self.seconds if under_attack else self.quiet_seconds
                    times.append(time.monotonic() - began)
                    if len(self.quiet_seconds) == QUIET_ROUNDS:
                        self._working.set()
        except Exception as error:  # whatever it is, it is what the attackers did
            self.trouble.append(f"{type(error).__name__}: {error}")
        finally:
            self._working.set()

    def _round(
        self, client: hocket.Client, producer: hocket.Producer, subscription: hocket.Subscription
    ) -> None:
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.send(self._next(partition), partition=partition)
                if number == RECORDS // 2:
                    time.sleep(0)  # let a thief come in between
        producer.flush(ROUND_SECONDS_MAX)
        for partition in range(PARTITIONS):
            client.publish(
                VICTIM, self._next(partition), partition=partition, timeout=ROUND_SECONDS_MAX
            )
        wanted = sum(map(len, self.sent.values()))
        while sum(map(len, self.received.values())) < wanted:
            message = subscription.receive(timeout=ROUND_SECONDS_MAX)
            if message.value.startswith(OWN):
                self.received[message.partition].append(bytes(message.value))
            else:
                self.passed_over += 1
            message.ack()
        subscription.commit(ROUND_SECONDS_MAX)

    def _next(self, partition: int) -> bytes:
        value = b"%s%d/%d" % (OWN, partition, len(self.sent[partition]))
        self.sent[partition].append(value)
        return value

    # --- what has become of it -------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        return len(self.seconds)

    def verdict(self) -> list[str]:
        """What is wrong with its work; after `stop`."""
        wrong = [f"the victim: {each}" for each in self.trouble]
        for partition, sent in self.sent.items():
            wrong += _difference(
                f"received of partition {partition}", sent, self.received[partition]
            )
        if not self.rounds:
            wrong.append("the victim has done nothing while it was attacked")
        elif max(self.seconds) > ROUND_SECONDS_MAX:
            wrong.append(
                f"a round of the victim took {max(self.seconds):.1f} s, more than "
                f"{ROUND_SECONDS_MAX:.0f}"
            )
        return wrong

    def stored(self) -> list[str]:
        """What is wrong with what the broker has stored of it, and with its index."""
        try:
            return self._stored()
        except HocketError as error:
            return [f"the victim cannot look at its work: {type(error).__name__}: {error}"]

    def _stored(self) -> list[str]:
        wrong: list[str] = []
        with self._place.connect("vic") as client:
            partitions = client.describe(VICTIM).partitions
            ends = sum(each.end for each in partitions)
            found: dict[int, list[bytes]] = defaultdict(list)
            after_last: dict[int, int] = {}
            with client.subscribe(VICTIM, start="earliest") as subscription:
                for _ in range(ends):
                    message = subscription.receive(timeout=60)
                    if message.value.startswith(OWN):
                        found[message.partition].append(bytes(message.value))
                        after_last[message.partition] = message.offset + 1
            for partition, sent in self.sent.items():
                wrong += _difference(f"stored of partition {partition}", sent, found[partition])
            (index,) = [each for each in client.indexes(VICTIM) if each.name == INDEX]
            for each in index.partitions:
                if each.position < after_last[each.partition]:
                    wrong.append(
                        f"the victim had committed up to {after_last[each.partition]} of partition "
                        f"{each.partition}, and its index is at {each.position}"
                    )
        return wrong

    def times(self) -> str:
        if not self.seconds:
            return "no round"
        quiet = statistics.median(self.quiet_seconds or [0.0]) * 1000
        busy = statistics.median(self.seconds) * 1000
        return (
            f"{self.rounds} rounds, {quiet:.0f} ms quiet, {busy:.0f} ms attacked (median), "
            f"{max(self.seconds) * 1000:.0f} ms at most"
        )


def _difference(what: str, sent: list[bytes], found: list[bytes]) -> list[str]:
    if sent == found:
        return []
    lost = [each for each in sent if each not in set(found)]
    twice = len(found) - len(set(found))
    order = "" if lost or twice else ", in another order"
    return [f"{what}: {len(lost)} lost {lost[:3]}, {twice} twice{order}"]
