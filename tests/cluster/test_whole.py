"""Ten broker processes in one ring, plain and by TLS: kills, stops, a cut, lookups, one catalogue.

This takes minutes: `make test-cluster`. A slice of it that always runs is in `test_slice.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import log2
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import pytest

from tests.support.cli import HOCKET, environment
from tests.support.cluster.certified import certified
from tests.support.cluster.networks import has_namespaces, run
from tests.support.cluster.processes import (
    Cluster,
    Process,
    check_lookups,
    cluster_in,
    wait_for,
)
from tests.support.threads import LONG

pytestmark = [
    pytest.mark.skipif(not LONG, reason="minutes long: make test-cluster"),
    pytest.mark.timeout(900),
]
NAMES = list("abcdefghij")
IDLE_SECONDS = 60.0
LONG_IDLE_SECONDS = 600.0
SAMPLE_SECONDS = 20.0
CPU_SHARE_MAX = 0.02  # of a core, of each idle node
# What a node may grow by in ten idle minutes, after a minute in which it comes to rest. A leak
# of 100 bytes with every message of the ring (some 20 a second) would be more.
GROWTH_BYTES_MAX = 1 << 20
CUT_SECONDS = 40.0


def tell(text: str) -> None:
    """What was measured; it is seen with `-s`, and if the test fails."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def started(cluster: Cluster) -> None:
    """Ten nodes, each by way of another that is there already."""
    first, *others = NAMES
    cluster.found(first)
    for number in range(0, len(others), 3):
        cluster.join(others[number : number + 3], list(cluster.up))


def neighbours(cluster: Cluster, count: int) -> list[Process]:
    """So many in a row on the ring, without the root."""
    order = [each.name for each in cluster.up[0].ring().nodes]
    begin = order.index(NAMES[0]) + 1
    return [cluster[order[(begin + number) % len(order)]] for number in range(count)]


def check_hops(cluster: Cluster, at: Process) -> None:
    ring = cluster.wait_ideal(60, at)
    # Fingers are renewed one at a time, so the way is short some time after the ring is right.
    best = 0.5 * log2(len(ring.nodes)) + 1

    def is_short() -> bool:
        hops = check_lookups(cluster, ring, 100)
        return sum(hops) / len(hops) <= best and max(hops) >= 2

    wait_for(is_short, 60)


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_ten_nodes_bear_it_all(tmp_path: Path, way: str):
    with cluster_in(tmp_path, "--successors", "2") as cluster:
        if way == "tls":
            certified(cluster, NAMES)
        started(cluster)
        began = monotonic()
        ring = cluster.wait_ideal(30)
        tell(f"{way}: ideal {monotonic() - began:.1f} s after the last was ready")
        ids = {each.name: (each.node, each.position) for each in ring.nodes}
        root = cluster[NAMES[0]]
        check_hops(cluster, root)

        before = [(each.cpu_seconds(), each.memory_bytes()) for each in cluster.up]
        sleep(IDLE_SECONDS)  # what is measured is a time
        after = [(each.cpu_seconds(), each.memory_bytes()) for each in cluster.up]
        shares = [
            (late[0] - soon[0]) / IDLE_SECONDS for soon, late in zip(before, after, strict=True)
        ]
        growth = [late[1] - soon[1] for soon, late in zip(before, after, strict=True)]
        tell(f"{way}: idle, of a core: {max(shares):.2%} at most; memory grew by {growth}")
        assert max(shares) < CPU_SHARE_MAX

        row = neighbours(cluster, 5)
        far = next(each for each in cluster.up[1:] if each not in row)
        victims = [*row[:2], far]
        for victim in victims:
            victim.kill()
        began = monotonic()
        cluster.wait_ideal(60)
        tell(f"{way}: ideal {monotonic() - began:.1f} s after three kills")
        asker = cluster.up[1]
        asker.client().create_topic("meanwhile")
        cluster.restart(victims[0].name, victims[2].name)
        ring = cluster.wait_ideal(60)
        assert {each.name: (each.node, each.position) for each in ring.nodes}.items() <= ids.items()
        for each in cluster.up:
            wait_for(lambda each=each: "meanwhile" in each.client().topics(), 60, cluster.logs)

        stopped = next(each for each in cluster.up[1:] if each is not asker)
        stopped.stop()
        sleep(1)  # less than anybody is given up for
        stopped.go_on()
        assert cluster.wait_ideal(10, asker)
        assert asker.states()[stopped.name] == "alive"
        stopped.stop()
        began = monotonic()
        cluster.wait_ideal(30, asker)  # of all others
        sleep(max(0.0, 30 - (monotonic() - began)))
        stopped.go_on()
        ring = cluster.wait_ideal(60, asker)
        assert {each.name: (each.node, each.position) for each in ring.nodes}.items() <= ids.items()

        # Neither healing nor lookups need group 0.
        root.stop()
        victim = next(each for each in cluster.up if each is not asker)
        victim.kill()
        cluster.wait_ideal(60, asker)
        check_hops(cluster, asker)
        root.go_on()
        cluster.wait_ideal(60, asker)

        root.kill()
        cluster.restart(root.name)
        cluster.wait_ideal(60, asker)
        wait_for(lambda: "meanwhile" in root.client().topics(), 60, cluster.logs)


class Sample(NamedTuple):
    """Of one node, at one moment."""

    cpu_seconds: float
    memory_bytes: int


@pytest.mark.timeout(1200)
def test_ten_idle_nodes_take_little_and_do_not_grow(tmp_path: Path):
    with cluster_in(tmp_path, "--successors", "2") as cluster:
        certified(cluster, NAMES)
        started(cluster)
        cluster.wait_ideal(60)
        sleep(IDLE_SECONDS)  # fingers are found, and what is allocated once is allocated

        def samples() -> list[Sample]:
            return [Sample(each.cpu_seconds(), each.memory_bytes()) for each in cluster.up]

        began = monotonic()
        first = last = samples()
        most = [each.memory_bytes for each in first]
        while monotonic() - began < LONG_IDLE_SECONDS:
            sleep(SAMPLE_SECONDS)
            last = samples()
            most = [max(old, new.memory_bytes) for old, new in zip(most, last, strict=True)]
        seconds = monotonic() - began
        shares = [
            (new.cpu_seconds - old.cpu_seconds) / seconds
            for old, new in zip(first, last, strict=True)
        ]
        growth = [new.memory_bytes - old.memory_bytes for old, new in zip(first, last, strict=True)]
        tell(
            f"idle for {seconds:.0f} s: of a core {min(shares):.2%} to {max(shares):.2%}; memory "
            f"{min(most) >> 10} to {max(most) >> 10} kB, which grew by {max(growth) >> 10} kB at "
            f"most ({[each >> 10 for each in growth]})"
        )
        assert len(cluster.up) == len(NAMES)
        assert cluster.ideal(cluster.up[0])
        assert max(shares) < CPU_SHARE_MAX
        assert max(growth) < GROWTH_BYTES_MAX


# --- a cut ---------------------------------------------------------------------------------------


Halves = list[tuple[list[str], str]]  # of each: what a command is begun with; the address


def cut(halves: Halves, act: str) -> None:
    """`add` a cut, or `del` it: each half throws away what is for the other."""
    (left, left_address), (right, right_address) = halves
    run(*left, "ip", "route", act, "blackhole", f"{right_address}/32")
    run(*right, "ip", "route", act, "blackhole", f"{left_address}/32")


@contextmanager
def two_halves() -> Iterator[Halves]:
    """Two network namespaces with a wire between them."""
    spaces = ["hocket-left", "hocket-right"]
    try:
        for space in spaces:
            run("ip", "netns", "add", space)
        run("ip", "link", "add", "hkt0", "netns", spaces[0], "type", "veth", "peer", "name", "hkt0",
            "netns", spaces[1])  # fmt: skip
        halves = []
        for number, space in enumerate(spaces, 1):
            within = ["ip", "netns", "exec", space]
            address = f"10.199.0.{number}"
            run(*within, "ip", "address", "add", f"{address}/24", "dev", "hkt0")
            run(*within, "ip", "link", "set", "lo", "up")
            run(*within, "ip", "link", "set", "hkt0", "up")
            halves.append((within, address))
        yield halves
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


@pytest.mark.skipif(not (LONG and has_namespaces()), reason="needs network namespaces")
def test_a_cut_makes_two_rings_and_its_end_makes_one(tmp_path: Path):
    """Beyond loopback, so with TLS and with users; asked by commands within each namespace."""
    with two_halves() as halves, cluster_in(tmp_path, "--successors", "2") as cluster:
        certified(cluster, NAMES, *(address for _, address in halves))
        token = tmp_path / "admin.token"
        sides = [NAMES[:5], NAMES[5:]]
        seen: dict[str, bytes] = {}  # the last answer of each that was asked
        places = {name: half for names, half in zip(sides, halves, strict=True) for name in names}

        def begin(name: str, *options: str) -> None:
            within, address = places[name]
            options = (*cluster.options, *options)
            cluster[name].begin(*options, listen=f"{address}:0", prefix=within)

        begin(NAMES[0], "--admin-token-file", str(token))
        cluster[NAMES[0]].wait_ready()
        for name in [*sides[0][1:], *sides[1]]:
            begin(name, "--join", cluster[NAMES[0]].address)
        for name in [*sides[0][1:], *sides[1]]:
            cluster[name].wait_ready()

        def sees(name: str, wanted: list[str]) -> bool:
            """Whether the ring that this node is on is ideal, and has just these nodes."""
            node = cluster[name]
            env = environment(
                HOCKET_SERVER=node.url, HOCKET_TOKEN=token.read_text().strip(),
                HOCKET_TLS_CA=str(node.tls_ca),
            )  # fmt: skip
            command = [*places[name][0], *HOCKET, "ring", "--json"]
            done = subprocess.run(command, capture_output=True, env=env, check=False)
            seen[name] = done.stdout + done.stderr
            if done.returncode:
                return False
            ring = json.loads(done.stdout)
            return ring["ideal"] and sorted(each["name"] for each in ring["nodes"]) == wanted

        def all_seen() -> str:
            for name in places:
                sees(name, [])
            return "\n".join(f"{name}: {said.decode()}" for name, said in seen.items())

        everybody = sorted([*sides[0], *sides[1]])
        wait_for(lambda: sees(NAMES[0], everybody), 60, all_seen)
        cut(halves, "add")
        began = monotonic()
        for names in sides:
            wait_for(lambda names=names: sees(names[0], sorted(names)), 60, all_seen)
        tell(f"cut: two ideal rings after {monotonic() - began:.1f} s")
        sleep(max(0.0, CUT_SECONDS - (monotonic() - began)))  # what is measured is a time
        for names in sides:
            assert sees(names[-1], sorted(names)), all_seen()
        cut(halves, "del")
        began = monotonic()
        for names in sides:
            wait_for(lambda names=names: sees(names[0], everybody), 60, all_seen)
        tell(f"cut: one ideal ring {monotonic() - began:.1f} s after its end")
