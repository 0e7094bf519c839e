"""What the Raft core costs: a batch at the leader, a beat of many groups, an idle group's memory.

No bytes, no disk, no network: the core alone, as its driver calls it. Times are of the processor,
the best of several rounds, so that what else the machine does hardly counts. Run it by hand:
python -m benchmarks.raft [--json FILE]; it fails if a bound is exceeded.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from hocket.core.raft.events import Appended, Due, Flushed, Heard, SendToNode, Started, Timer
from hocket.core.raft.group import Host, Saved
from hocket.core.raft.membership import Configuration
from hocket.core.raft.messages import Accepted, Beat, BeatAnswer, Heartbeat, VoteIs
from hocket.core.raft.pulse import Pulse
from hocket.core.raft.raft import Raft

NAMES = tuple(f"{number:08x}-5bd1-4d0e-9d35-0d4c51a6f3c2" for number in range(15))  # store ids
ME, OTHERS = NAMES[0], NAMES[1:]

BOUNDS = {
    "batch_us": 25.0,  # propose to commit at the leader of three
    "beat_of_1000_groups_ms": 1.0,
    "idle_follower_bytes": 1_536.0,
}


def best(measure: Callable[[], float], rounds: int) -> float:
    return min(measure() for _ in range(rounds))


def leader(host: Host, number: int, peers: tuple[str, str]) -> Raft:
    """A leader of three whose first entry is committed."""
    raft = Raft(host, number, Saved(Configuration(tuple(sorted((host.me, *peers))))))
    raft.step(Started(), 0)
    raft.step(Due(Timer.ELECTION), 0)
    raft.step(Heard(peers[0], VoteIs(1, 1, True, pre=True)), 0)
    raft.step(Heard(peers[0], VoteIs(1, 1, True)), 0)
    for peer in peers:
        raft.step(Heard(peer, Accepted(1, 1, 1)), 0)
    raft.step(Flushed(1, 1), 0)
    assert raft.leading is not None
    assert raft.leading.has_committed
    return raft


def batch_us(batches: int = 5_000) -> float:
    """From the append to the commit, with the answers of both followers and the own flush."""
    raft = leader(Host(ME), 1, (OTHERS[0], OTHERS[1]))
    begun = time.process_time()
    for index in range(2, batches + 2):
        raft.step(Appended(index), index)
        raft.step(Flushed(index, 1), index)
        raft.step(Heard(OTHERS[0], Accepted(1, index, index)), index)
        raft.step(Heard(OTHERS[1], Accepted(1, index, index)), index)
    spent = time.process_time() - begun
    assert raft.group.commit == batches + 1
    return spent / batches * 1e6


def led(groups: int) -> Pulse:
    host = Host(ME)
    pulse = Pulse(host)
    for number in range(groups):
        first = number % len(OTHERS)
        pulse.add(leader(host, number, (OTHERS[first], OTHERS[(first + 1) % len(OTHERS)])))
    return pulse


def beat_ms(pulse: Pulse) -> float:
    begun = time.process_time()
    sends = pulse.beat(1)
    spent = time.process_time() - begun
    assert len(sends) == len(OTHERS)
    return spent * 1e3


def answers_ms(pulse: Pulse) -> float:
    """The answers of all peers to one beat: every group has heard them."""
    beats = [send for send in pulse.beat(1) if isinstance(send, SendToNode)]
    begun = time.process_time()
    for send in beats:
        assert isinstance(send.message, Beat)
        answer = BeatAnswer(send.message.life, send.message.sequence, [], [], [])
        effects = pulse.answered(send.to, answer, 1)
        assert effects == []
    return (time.process_time() - begun) * 1e3


def followers(groups: int) -> Pulse:
    host = Host(ME)
    pulse = Pulse(host)
    for number in range(groups):
        # Each group has objects of its own, but for the ids, which a node has once.
        configuration = Configuration(tuple(sorted((ME, OTHERS[0], OTHERS[1]))))
        saved = Saved(configuration, 1_000 + number, OTHERS[0], runs=((5_000 + number, 999),))
        raft = Raft(host, 10_000 + number, saved)
        raft.step(Started(), 1_000_000 + number)
        raft.step(Heard(OTHERS[0], Heartbeat(1_000 + number, 0)), 2_000_000 + number)
        pulse.add(raft)
    return pulse


def followed_ms(pulse: Pulse) -> float:
    """A beat as it comes to a node that follows in all of these groups."""
    lines = [(number, raft.group.term, 0) for number, raft in pulse.groups.items()]
    beat = Beat(1, 1, lines, [])
    begun = time.process_time()
    effects = pulse.heard(OTHERS[0], beat, 3_000_000)
    spent = time.process_time() - begun
    assert len(effects) == 1
    return spent * 1e3


def idle_follower_bytes(groups: int = 1_000) -> float:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = followers(groups)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept.groups) == groups
    return (after - before) / groups


def measure() -> dict[str, float]:
    of_leader, of_follower = led(1_000), followers(1_000)
    gc.collect()
    gc.disable()  # it would be charged to whoever is measured when it runs
    try:
        times = {
            "batch_us": best(batch_us, 9),
            "beat_of_1000_groups_ms": best(lambda: beat_ms(of_leader), 30),
            "answers_to_a_beat_of_1000_groups_ms": best(lambda: answers_ms(of_leader), 30),
            "beat_heard_by_1000_followers_ms": best(lambda: followed_ms(of_follower), 30),
        }
    finally:
        gc.enable()
    return {**times, "idle_follower_bytes": idle_follower_bytes()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    options = parser.parse_args()
    found = {name: round(value, 3) for name, value in measure().items()}
    report = {"python": sys.version.split()[0], "bounds": BOUNDS, "figures": found}
    text = json.dumps(report, indent=2) + "\n"
    print(text, end="")
    if options.json is not None:
        options.json.write_text(text)
    exceeded = [name for name, bound in BOUNDS.items() if found[name] > bound]
    for name in exceeded:
        print(f"{name} is {found[name]}, more than {BOUNDS[name]}", file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
