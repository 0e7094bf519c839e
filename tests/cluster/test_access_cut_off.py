"""A node that does not hear the root, and a right that is taken away meanwhile, on real processes.

What such a node permits is decided in docs/internals/access.md. It goes on by what it knew: what is
open on topics of which it has the only replica stays open, and who had a right token gets in. What
is replicated is led by others within seconds, and these have heard. When the node hears the root
again it ends what has been forbidden meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from hocket.errors import HocketError, NotAllowed
from tests.cluster.test_access import COPIED, NAMES, Handle, Place, World, revoke, tell, world_in
from tests.support.cluster.networks import Room, has_namespaces, room_of
from tests.support.cluster.processes import wait_for
from tests.support.threads import LONG

SECONDS = 60.0
REPLICAS = "three replicas"
CUT_SECONDS = 12.0  # far beyond what a leader leads without a majority
# Both are stated in docs/internals/access.md: from the cut to the last use of a handle on a topic
# with three replicas; from the mend of the cut to the end of the last handle.
LEADS_SECONDS = 5.0
HEARS_SECONDS = 10.0


def cut_off(room: Room, name: str) -> None:
    """From the other nodes, and not from clients."""
    one = NAMES.index(name) + 1
    for other in range(1, len(NAMES) + 1):
        if other != one:
            room.cut([(one, other), (other, one)])


def go_on(handles: list[Handle]) -> None:
    """Each is used again, twice at least: once may have been under way."""
    before = {each.name: each.uses for each in handles}
    wait_for(lambda: all(each.uses > before[each.name] + 1 for each in handles), SECONDS,
             lambda: handles)  # fmt: skip


def get_in(world: World, name: str, token: str, topic: str) -> None:
    """By a connection of its own, and publish there."""
    with world.connect(name, token) as client:
        client.publish(topic, b"late")


def topic_at(world: World, name: str) -> str:
    """Whose only partition, with one replica, is at this node."""
    admin = world.admins[name]
    for number in count():
        topic = f"only-{name}-{number}"
        admin.create_topic(topic, delayed=True)
        leader = admin.describe(topic).partitions[0].leader
        if world.nodes[leader] == name:
            return topic
    raise AssertionError("unreachable")


@contextmanager
def handles_at(world: World, name: str, token: str, topic: str) -> Iterator[list[Handle]]:
    copied = world.led(COPIED)
    assert copied is not None
    client = world.connect(name, token)
    place = Place(client, name, {topic: 0, COPIED: copied[name]}, topic)
    try:
        wait_for(lambda: all(each.uses > 1 for each in place.handles), SECONDS,
                 lambda: place.handles)  # fmt: skip
        yield place.handles
    finally:
        place.close()
        with suppress(HocketError):  # to drop what is staged
            client.close(1)


@pytest.mark.skipif(not LONG, reason="twelve seconds cut off: make test-cluster")
@pytest.mark.timeout(200)
def test_a_node_that_hears_no_root_permits_what_it_knew(tmp_path: Path):
    if not has_namespaces():
        pytest.skip("needs network namespaces: root, and iproute2")
    first, lonely = NAMES[0], NAMES[-1]
    with room_of(len(NAMES)) as room, world_in(tmp_path, room) as world:
        user, token, role = world.new_user()
        topics = {name: topic_at(world, name) for name in (first, lonely)}
        copied = world.led(COPIED)
        assert copied is not None
        admin = world.admins[first]
        with handles_at(world, lonely, token, topics[lonely]) as handles:
            replicated = [each for each in handles if REPLICAS in each.name]
            others = [each for each in handles if REPLICAS not in each.name]
            cut_off(room, lonely)
            cut = time.monotonic()
            revoke(admin, user, role)
            tell(f"revoked at {first} {time.monotonic() - cut:.1f} s after the cut")

            # The next leader takes this, and the user's handles get nothing of it.
            admin.publish(COPIED, b"late", partition=copied[lonely], timeout=SECONDS)
            tell(f"led by another node {time.monotonic() - cut:.1f} s after the cut")
            while time.monotonic() - cut < CUT_SECONDS:
                go_on(others)
                get_in(world, lonely, token, topics[lonely])
            with pytest.raises(NotAllowed):  # at nodes that have heard
                get_in(world, first, token, topics[first])
            assert not any(each.error for each in others)
            last = max(each.used for each in replicated) - cut
            tell(f"a handle with {REPLICAS} was used {last:.1f} s after the cut at most")

            room.mend()
            mended = time.monotonic()
            wait_for(lambda: all(each.error for each in handles), SECONDS,
                     lambda: [each for each in handles if not each.error])  # fmt: skip
            heard = max(each.ended for each in handles) - mended
            tell(f"the last of {len(handles)} handles ended {heard:.2f} s after the cut was mended")
        for each in handles:
            assert isinstance(each.error, NotAllowed), each
        with pytest.raises(NotAllowed):
            get_in(world, lonely, token, topics[lonely])
        assert max(each.used for each in replicated) - cut < LEADS_SECONDS
        assert heard < HEARS_SECONDS
