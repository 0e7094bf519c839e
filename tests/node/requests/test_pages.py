"""Listings that are too long for one frame: new clients get all of them, old ones are told why not.

The topics, users and roles are put into the memory of a real broker, as if they had been made one
by one: these tests are about what goes over the wire. `tests/e2e/test_long_listings.py` makes them
through the broker.
"""

from __future__ import annotations

import pytest

import hocket
from hocket import frames
from hocket.core.metadata.catalogue import Topic
from hocket.core.metadata.roster import GRANTS_MAX, ROLES_OF_USER_MAX, User
from hocket.core.partition.cursors import Cursor
from hocket.model import (
    Grant,
    IndexDescription,
    IndexPartition,
    Participant,
    PartitionDescription,
    RoleDescription,
    TopicConfig,
    TopicDescription,
    UserDescription,
)
from hocket.node.requests import pages, transacting
from hocket.node.requests.pages import PAGE_BYTES, Page
from hocket.wire.frame_codec import encode
from hocket.wire.framing import HEADER_BYTES_MAX
from tests.support.node.running import Speaker, running

LONG = "x" * 255


@pytest.fixture
def place(tmp_path):
    with running(tmp_path / "data") as (broker, address):
        yield broker, address


def connected(address, **how):
    return hocket.connect("hocket://{}:{}".format(*address), **how)


def wiring_of(broker):
    return broker.node._wiring


def test_twenty_thousand_topics_are_listed(place):
    broker, address = place
    names = [f"topic-{n:05}" for n in range(20_000)]
    wiring_of(broker).catalogue.topics.update(
        {name: Topic(name, TopicConfig(), []) for name in names}
    )
    with connected(address) as client:
        assert client.topics() == names
    with Speaker(address) as old:
        old.greet()
        old.say(frames.ListTopics(7))
        answer = old.hear()
        assert (answer.request, answer.code, answer.may_have_happened) == (7, "tooLarge", False)
        assert "a newer client asks for it in parts" in answer.message
        old.say(frames.Ping(8))
        assert old.hear() == frames.Done(8), "the connection lives on"


def test_an_old_client_gets_all_that_fits(place):
    broker, address = place
    wiring_of(broker).catalogue.topics.update(
        {f"t{n:04}": Topic(f"t{n:04}", TopicConfig(), []) for n in range(7000)}
    )
    with Speaker(address) as old:
        old.greet()
        old.say(frames.ListTopics(7))
        answer = old.hear()
        assert (len(answer.topics), answer.next) == (7000, "")


def test_more_than_a_mebibyte_of_users_and_roles_is_described(place):
    broker, address = place
    with connected(address) as client:
        token = client.create_user("root", roles=["admin"])
    access = broker.node._access
    grants = tuple(Grant("publish", f"{n:03}" + "t" * 100, "i" * 100) for n in range(300))
    roles = {f"role-{n:03}": grants for n in range(40)}
    users = {f"user-{n:04}": User(f"user-{n:04}", tuple(roles)[:9], "") for n in range(8000)}
    for roster in (access.committed, access.leading):
        roster.roles.update(roles)
        roster.users.update(users)
    with connected(address, token=token) as client:
        found_users, found_roles = client.access()
    assert [user.name for user in found_users] == ["root", *users]
    assert found_users[-1].roles == tuple(roles)[:9]
    assert [(role.name, role.grants) for role in found_roles] == [
        ("admin", (Grant("admin"),)), *roles.items(),
    ]  # fmt: skip


def test_many_indexes_of_many_partitions_are_listed(place):
    broker, address = place
    with connected(address) as client:
        client.create_topic("t", partitions=50)
        names = [f"index-{n:04}" for n in range(1000)]
        for hosted in wiring_of(broker).partitions:
            hosted.core.cursors.applied.update({name: Cursor(0, 1, False, "own") for name in names})
        indexes = client.indexes("t")
        assert [index.name for index in indexes] == names
        assert {len(index.partitions) for index in indexes} == {50}
        assert client.lag("t", "index-0500") == 0
        with pytest.raises(hocket.errors.UnknownIndex):
            client.lag("t", "index-1000")


def test_many_partitions_are_described(place, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_BYTES", 2000)
    _, address = place
    with connected(address) as client:
        client.create_topic("t", partitions=100)
        partitions = client.describe("t").partitions
        assert [each.partition for each in partitions] == list(range(100))
    with Speaker(address) as speaker:
        speaker.greet()
        speaker.say(frames.DescribeTopic(7, "t"))
        assert len(speaker.hear().topics[0].partitions) == 100, "an old client gets what it got"
        speaker.say(frames.DescribeTopic(8, "t", paged=True))
        assert 0 < len(speaker.hear().topics[0].partitions) < 100
        for wrong in ("x", "-1", "²", "9" * 30):
            speaker.say(frames.DescribeTopic(9, "t", paged=True, after=wrong))
            assert speaker.hear().code == "outOfRange"
        speaker.say(frames.DescribeTopic(9, "t", paged=True, after="999"))
        assert speaker.hear().topics[0].partitions == ()


def test_what_is_made_and_deleted_between_two_parts_moves_nothing_else(place, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_BYTES", 400)
    broker, address = place
    topics = wiring_of(broker).catalogue.topics
    topics.update({name: Topic(name, TopicConfig(), []) for name in "bdfhjl"})
    with Speaker(address) as speaker:
        speaker.greet()
        seen, after = [], ""
        while True:
            speaker.say(frames.ListTopics(7, paged=True, after=after))
            answer = speaker.hear()
            seen += [topic.name for topic in answer.topics]
            if not (after := answer.next):
                break
            topics.pop("d", None)  # it was described, and is gone
            topics["a"] = topics["e"] = topics["k"] = topics["b"]
    assert [name for name in seen if name in "bfhjl"] == list("bfhjl")
    assert len(seen) == len(set(seen))


# --- participants in parts -----------------------------------------------------------------------


def test_the_participants_that_wait_for_their_commits_are_bounded(place, monkeypatch):
    monkeypatch.setattr(transacting, "NAMED_MAX", 5)
    some = (Participant("t", 0, b"p" * 16, 1, 1, 0),)
    _, address = place
    with Speaker(address) as one, Speaker(address) as other:
        one.greet()
        other.greet()
        one.say(frames.NameParticipants(7, "job", 1, 0, some * 3))
        assert one.hear() == frames.Done(7)
        other.say(frames.NameParticipants(7, "job", 1, 0, some * 3))
        assert other.hear().code == "busy"
        one.say(frames.NameParticipants(8, "job", 1, 3, some * 2))
        assert one.hear() == frames.Done(8)
        one.say(frames.CommitTransaction(9, "job", 1, (), named=5))
        assert one.hear().code == "unknownTopic", "there is no such topic, and all were looked at"
        other.say(frames.NameParticipants(8, "job", 1, 0, some * 3))
        assert other.hear() == frames.Done(8), "what was named is forgotten with its commit"


# --- sizes ---------------------------------------------------------------------------------------

PARTITION = PartitionDescription(5, 1, 2, 3, 4, 5, 6, 7, LONG, (LONG, LONG), LONG)
ITEMS = [
    (TopicDescription(LONG, TopicConfig(4096, 3, 1, 2, 3, 4)), pages.topic_bytes, "topics"),
    (PARTITION, pages.partition_bytes, "partitions"),
    (
        IndexDescription(LONG, "shared", True, (IndexPartition(1, 2, 3, True, 4, 5),) * 4096),
        pages.index_bytes,
        "indexes",
    ),
    (UserDescription(LONG, (LONG,) * ROLES_OF_USER_MAX), pages.user_bytes, "users"),
    (RoleDescription(LONG, (Grant("admin", LONG, LONG),) * GRANTS_MAX), pages.role_bytes, "roles"),
]


def frame_of(items, where):
    if where == "topics":
        return frames.Topics(7, items, LONG)
    if where == "partitions":
        return frames.Topics(7, (TopicDescription(LONG, TopicConfig(), items),), LONG)
    if where == "indexes":
        return frames.Indexes(7, items, LONG)
    if where == "users":
        return frames.Access(7, items, (), LONG)
    return frames.Access(7, (), items, LONG)


@pytest.mark.parametrize(("item", "size", "where"), ITEMS, ids=[where for _, _, where in ITEMS])
def test_the_largest_item_fits_and_sizes_are_not_too_low(item, size, where):
    page: Page = Page(paged=True)
    while page.takes(item, size(item)):
        pass
    assert len(encode(frame_of(tuple(page.items), where))) < HEADER_BYTES_MAX
    one, two = (len(encode(frame_of((item,) * count, where))) for count in (1, 2))
    assert two - one <= size(item) < 1.3 * (two - one)
    assert len(page.items) == max(1, PAGE_BYTES // size(item))


def test_what_is_not_asked_for_in_parts_is_not_cut():
    page: Page = Page(paged=False)
    assert all(page.takes(n, PAGE_BYTES) for n in range(5))
    assert page.items == [0, 1, 2, 3, 4]
