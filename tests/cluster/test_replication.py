"""Replicas on real processes, under load: nodes die, stand still, are cut off and lose their data.

By default some faults with three nodes; with HOCKET_STRESS=long (make test-cluster) more than a
hundred, with three and with five. What the clients saw is judged by
`tests.support.cluster.history`; then the files of the replicas are compared, byte for byte.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import hocket
from hocket.wire import batch as batches
from hocket.wire.entry import HEADER_BYTES, pack_header, unpack_header
from tests.support.cluster.certified import certified
from tests.support.cluster.clients import LOAD, TOPICS, Clients, stored
from tests.support.cluster.disks import SmallDisk, has_mounts, small_disk
from tests.support.cluster.faults import CUTS, DEATHS, Fault, Faults
from tests.support.cluster.history import Event, Stored, check
from tests.support.cluster.networks import Room, has_namespaces, room_of
from tests.support.cluster.processes import Cluster, cluster_in
from tests.support.cluster.stores import entries_of, values_of
from tests.support.threads import LONG

NAMES = ["one", "two", "three", "four", "five"]
KINDS = ("keyed", "unkeyed", "many", "publish", "plain", "own")  # what replicated topics take
IDLE = ("transactions_are_whole", "settled_is_not_delivered_again", "a_key_is_delivered_in_order")
GO_ON_SECONDS = 60.0
Kind = Callable[[Faults], Fault]


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextmanager
def nodes_in(directory: Path, count: int, room: Room | None) -> Iterator[Cluster]:
    """So many nodes; in a room with cables, which is beyond loopback, with TLS and with users."""
    directory.mkdir(exist_ok=True)
    with cluster_in(directory) as cluster, pytest.MonkeyPatch.context() as patch:
        first, *others = NAMES[:count]
        options: tuple[str, ...] = ()
        if room is not None:
            addresses = [room.address(number) for number in range(1, count + 1)]
            certified(cluster, NAMES[:count], *addresses)
            for number, name in enumerate(NAMES[:count], 1):
                cluster[name].host, cluster[name].prefix = room.address(number), room.within(number)
            options = ("--admin-token-file", str(directory / "admin.token"))
        founder = cluster.found(first, *options)
        if room is not None:
            patch.setenv("HOCKET_TOKEN", (directory / "admin.token").read_text().strip())
            patch.setenv("HOCKET_TLS_CA", str(founder.tls_ca))
        cluster.join(others, [founder])
        yield cluster


class Run:
    """Some faults, one after another, under load, and what was seen."""

    def __init__(self, faults: Faults, clients: Clients) -> None:
        self.faults = faults
        self.clients = clients
        self.seconds: dict[str, list[float]] = defaultdict(list)  # until all go on, in each fault

    def suffer(self, kinds: Sequence[Kind]) -> None:
        for number, kind in enumerate(kinds):
            self.clients.wait_until_all_go_on(GO_ON_SECONDS)
            fault = kind(self.faults)
            began = time.monotonic()
            next(fault)
            self.clients.wait_until_all_go_on(GO_ON_SECONDS)
            seconds = time.monotonic() - began
            assert next(fault, "over") == "over"
            self.clients.wait_until_all_go_on(GO_ON_SECONDS)
            self.seconds[kind.__name__].append(seconds)
            whole = time.monotonic() - began
            tell(f"{number}: {kind.__name__}: all go on after {seconds:.1f} s; over at {whole:.1f}")

    def report(self) -> None:
        for kind, seconds in sorted(self.seconds.items()):
            median, worst = statistics.median(seconds), max(seconds)
            tell(f"{kind}: {len(seconds)} times; all go on after {median:.1f} s, {worst:.1f} s")


def endure(
    directory: Path,
    count: int,
    replication: int,
    kinds: Sequence[Kind],
    room: Room | None = None,
    disks: Mapping[str, SmallDisk] | None = None,
    partitions: int = TOPICS[LOAD],
) -> None:
    with nodes_in(directory / "nodes", count, room) as cluster:
        names = NAMES[:count]
        with hocket.connect(cluster[names[0]].url, timeout=30) as client:
            client.create_topic(
                LOAD, partitions=partitions, replication=replication, segment_bytes="1MiB"
            )
            chance = random.Random("faults")
            faults = Faults(cluster, names, LOAD, client, chance, room, disks or {})
            faults.wait_led()
            with Clients([cluster[name].url for name in names], directory, KINDS) as clients:
                run = Run(faults, clients)
                run.suffer(kinds)
                events = clients.finish()
            faults.wait_led()
            events += stored(client, [LOAD])
            faults.wait_even()
            if LONG:
                faults.wait_at_home()
                faults.wait_even()
        for name in names:
            cluster[name].stop()  # so that nobody elects anybody while one after another dies
        directories = [cluster[name].data for name in names]
    run.report()
    for sentence, looked_at in check(events, IDLE).items():
        tell(f"{sentence}: {looked_at}")
    compare(directories, partitions, replication, events)


def compare(
    directories: Sequence[Path], partitions: int, replication: int, events: Sequence[Event]
) -> None:
    """The replicas of a log are the same bytes in the files of the nodes, and what was read.

    One may begin a little later than another: the first entry of a log holds no record, and a
    checkpoint may do without it.
    """
    groups = range(1, 1 + partitions)
    copies = [entries_of(path, groups) for path in directories]
    read: dict[int, dict[int, str]] = {number: {} for number in range(partitions)}
    for each in events:
        if isinstance(each, Stored):
            read[each.partition][each.offset] = each.value
    for partition, group in enumerate(groups):
        logs = [each[group] for each in copies if each[group]]
        assert len(logs) == replication, f"group {group} is on {len(logs)} nodes"
        indexes = range(max(map(min, logs)), max(map(max, logs)) + 1)
        differing = [at for at in indexes if len({each.get(at) for each in logs}) > 1]
        assert not differing, f"entries {differing[:5]} of group {group} differ"
        for log in logs:
            values = {at: value.decode() for at, value in values_of(log).items()}
            assert values == read[partition], f"group {group} holds other records than were read"
        tell(f"group {group}: {len(indexes)} entries are the same on {replication} nodes")


def some(count: int, kinds: Sequence[Kind]) -> list[Kind]:
    """So many, all kinds about equally often, in an order of chance."""
    chosen = [kinds[number % len(kinds)] for number in range(count)]
    random.Random("order").shuffle(chosen)
    return chosen


SLICE = (Faults.leader_killed, Faults.stranger_speaks, Faults.all_killed)
FULL = [Faults.follower_full, Faults.leader_full] * 6
OF_FIVE = (*DEATHS, Faults.two_killed)


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_in_a_few_faults(tmp_path: Path):
    endure(tmp_path, 3, 3, SLICE)


@pytest.mark.skipif(not LONG, reason="minutes long: make test-cluster")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("count", "replication", "kinds", "cuts"),
    [
        (3, 3, some(32, DEATHS), False),
        (3, 3, some(24, (*CUTS, Faults.leader_killed, Faults.all_killed)), True),
        (5, 3, some(24, OF_FIVE[:-1]), False),
        (5, 5, some(22, (*CUTS, Faults.two_killed, Faults.leader_stopped)), True),
    ],
    ids=["three nodes", "three nodes and cuts", "five nodes", "five replicas and cuts"],
)
def test_nothing_acknowledged_is_lost_whatever_befalls_nodes(
    tmp_path: Path, count: int, replication: int, kinds: list[Kind], cuts: bool
):
    if not cuts:
        endure(tmp_path, count, replication, kinds)
        return
    if not has_namespaces():
        pytest.skip("needs network namespaces: root, and iproute2")
    with room_of(count) as room:
        endure(tmp_path, count, replication, kinds, room)


@pytest.mark.skipif(not LONG, reason="minutes long: make test-cluster")
@pytest.mark.timeout(600)
def test_a_full_disk_stops_nobody(tmp_path: Path):
    if not has_mounts(tmp_path):
        pytest.skip("needs disks of its own: root, and tmpfs")
    with ExitStack() as mounted:
        disks = {
            name: mounted.enter_context(small_disk(tmp_path / "nodes" / name)) for name in NAMES[:3]
        }
        endure(tmp_path, 3, 3, FULL, disks=disks, partitions=1)


# --- the comparison of files can fail ------------------------------------------------------------


def _entry(index: int, value: str) -> bytes:
    """An entry with one record, as it stands in a log."""
    batch = batches.encode([value.encode()], timestamps=5)
    sent = unpack_header(batch)
    header = pack_header(
        length=sent.length, kind=sent.kind, codec=sent.codec, flags=sent.flags, count=sent.count,
        term=1, index=index, base_offset=index - 1, body_crc=sent.body_crc,
        max_timestamp=sent.max_timestamp,
    )  # fmt: skip
    return header + bytes(batch)[HEADER_BYTES:]


def _good() -> tuple[list[dict[int, dict[int, bytes]]], list[Event]]:
    log = {index: _entry(index, f"v{index}") for index in (1, 2, 3)}
    copies = [{1: dict(log)} for _ in range(3)]
    return copies, [Stored(index, LOAD, 0, index - 1, f"v{index}") for index in (1, 2, 3)]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda copies: copies[1][1].update({2: _entry(2, "another")}), "entries .2. .* differ"),
        (lambda copies: copies[2][1].pop(3), "entries .3. .* differ"),
        (lambda copies: copies[2][1].clear(), "is on 2 nodes"),
        (lambda copies: [c[1].update({4: _entry(4, "more")}) for c in copies], "other records"),
    ],
)
def test_replicas_that_differ_are_found(monkeypatch, tmp_path, damage, why):
    copies, events = _good()
    directories = [tmp_path / str(number) for number in range(3)]
    found = dict(zip(directories, copies, strict=True))
    monkeypatch.setattr(f"{__name__}.entries_of", lambda path, _groups: found[path])
    compare(directories, 1, 3, events)
    damage(copies)
    with pytest.raises(AssertionError, match=why):
        compare(directories, 1, 3, events)
