"""A node on a damaged disk: what is whole is served, what is not is named, nothing ends it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from hocket import frames
from hocket.core.partition.partition import Partition
from hocket.log.directory import COPY, IDENTITY, read_file, write_checked
from hocket.log.model import RecoveredGroup
from hocket.log.verify import accept_loss, accept_losses, verify
from hocket.model import EntryKind, Grant, Start, TopicConfig
from hocket.node.running.partitions import replay
from tests.support.node.damaged import KilledNode, Stored, ended, refusal, warnings
from tests.support.node.guarded import Person, is_refused, one_batch, token_of

ORDERS = "orders"
KEPT = TopicConfig(disk_retention_us=None)  # whatever the time of its records


def with_topic(records: int = 0, *, partitions: int = 1) -> KilledNode:
    place = KilledNode()
    person = place.trusted()
    done = person.ask(frames.CreateTopic, ORDERS, replace(KEPT, partitions=partitions))
    assert isinstance(done, frames.Done)
    for number in range(records):
        publish(person, b"record %d" % number)
    return place


def publish(person: Person, value: bytes = b"more", topic: str = ORDERS, partition: int = 0) -> int:
    answer = person.ask(frames.Publish, topic, partition, payload=one_batch(value))
    assert isinstance(answer, frames.Published), answer
    return answer.offset


def refused_publish(person: Person, topic: str = ORDERS) -> str:
    answer = person.ask(frames.Publish, topic, 0, payload=one_batch(b"more"))
    assert isinstance(answer, frames.Failure), answer
    assert answer.code == "corruptData"
    return answer.message


def problem(place: KilledNode, topic: str = ORDERS) -> str:
    answer = place.trusted().ask(frames.DescribeTopic, topic)
    assert isinstance(answer, frames.Topics), answer
    return answer.topics[0].partitions[0].problem


def reader(place: KilledNode, start: Start = Start(), topic: str = ORDERS) -> Person:  # noqa: B008
    person = place.trusted()
    opened = person.ask(frames.OpenSubscription, topic, start=start, credit_bytes=1 << 20)
    assert isinstance(opened, frames.SubscriptionOpened), opened
    return person


# --- records ------------------------------------------------------------


def test_the_last_record_lost_is_named_and_the_partition_goes_on(caplog):
    place = with_topic(1)
    group = place.group_of(ORDERS)
    place.kill()
    (entry,) = place.entries(group)
    place.lose(entry)
    caplog.clear()
    with caplog.at_level(logging.INFO, "hocket"):
        place.start()
    said = warnings(caplog.records)
    assert "offsets 0 to 0" in said
    assert f"hocket log accept-loss 'the data directory' {group}" in said
    assert any("3 logs" in r.getMessage() for r in caplog.records if r.levelno == logging.INFO)
    assert "offsets 0 to 0" in problem(place)
    assert "topic 'orders', partition 0" in ended(reader(place))
    assert "offsets 0 to 0" in ended(reader(place))
    assert publish(place.trusted()) == 1
    for _ in range(2):
        place.restart()
        assert "offsets 0 to 0" in ended(reader(place)), "it is remembered"
        assert publish(place.trusted()) > 1
    place.kill()
    assert not verify(place.disk).ok
    (accepted,) = accept_loss(place.disk, group)
    assert (accepted.start, accepted.end) == (0, 1)
    place.start()
    assert problem(place) == ""
    person = reader(place)
    (moved,) = person.heard(frames.Moved)
    assert (moved.offset, moved.lost) == (1, 1)
    assert person.heard(frames.Deliver)[0].offset == 1
    place.node.close()
    assert verify(place.disk).ok


@pytest.mark.parametrize("lost", range(5))
def test_any_record_lost_leaves_the_others(lost):
    place = with_topic(5)
    place.kill()
    place.lose(place.entries(1)[lost])
    place.start()
    person = reader(place, Start("offset", lost + 1))
    assert sum(1 for _ in person.heard(frames.Deliver)) == (lost < 4)
    assert not person.heard(frames.HandleEnded)
    assert f"offsets {lost} to {lost}" in ended(reader(place, Start("offset", lost)))
    assert publish(place.trusted()) == 5
    place.restart()
    assert publish(place.trusted()) == 6
    place.node.close()


def test_an_accepted_loss_accepts_no_other():
    """Both are entries without records at the same offset."""
    place = with_topic()
    person = place.trusted()
    for name in ("a", "b", "c"):
        person.ask(frames.OpenSubscription, ORDERS, name, credit_bytes=1)
    place.kill()
    entries = [each for each in place.entries(1) if each.header.kind == EntryKind.CURSOR]
    place.lose(entries[0])
    assert len(accept_loss(place.disk, 1)) == 1
    place.lose(entries[1])
    report = verify(place.disk)
    assert [each.accepted for _, each in report.damage] == [True, False]
    place.start()
    assert "entries without records at offset 0" in problem(place)


def test_a_snapshot_of_a_version_that_knew_of_no_losses_is_brought_to_the_end_of_its_log():
    core = Partition(ORDERS, 0)
    replay(core, RecoveredGroup(next_index=4, next_offset=7), 0)
    assert (core.last_index, core.end, core.high_watermark) == (3, 7, 7)


# --- what else is lost with an entry ------------------------------------------------------------


def push(person: Person, handle: int, producer_id: bytes, sequence: int) -> None:
    batch = one_batch(b"%d" % sequence, producer_id=producer_id, sequence=sequence)
    frame = frames.Push(0, handle, 0)
    person.place.node.received(person.connection, frame, memoryview(batch))
    person.place.settle()


def test_a_producer_with_a_lost_batch_has_to_go():
    """The batch was never told of as stored elsewhere, and must not be taken for a repetition."""
    place = with_topic()
    person = place.trusted()
    opened = person.ask(frames.OpenProducer, ORDERS)
    assert isinstance(opened, frames.ProducerOpened)
    for sequence in range(3):
        push(person, opened.handle, opened.producer_id, sequence)
    place.kill()
    place.lose(place.entries(1)[1])
    place.start()
    for _ in range(2):
        person = place.trusted()
        answer = person.ask(frames.OpenProducer, ORDERS, opened.producer_id)
        assert isinstance(answer, frames.Failure), answer
        assert answer.code == "unknownProducer"
        batch = one_batch(b"1", producer_id=opened.producer_id, sequence=1)
        retried = person.ask(frames.Publish, ORDERS, 0, payload=batch)
        assert isinstance(retried, frames.Failure), retried
        assert retried.code == "unknownProducer"
        place.restart()  # the snapshot knows it, too


def test_a_producer_whose_last_batch_is_lost_sends_it_again():
    place = with_topic()
    person = place.trusted()
    opened = person.ask(frames.OpenProducer, ORDERS)
    assert isinstance(opened, frames.ProducerOpened)
    for sequence in range(3):
        push(person, opened.handle, opened.producer_id, sequence)
    place.kill()
    place.lose(place.entries(1)[2])
    place.start()
    person = place.trusted()
    again = person.ask(frames.OpenProducer, ORDERS, opened.producer_id)
    assert isinstance(again, frames.ProducerOpened)
    assert frames.unpacked(again.sequences) == [2]
    push(person, again.handle, opened.producer_id, 2)
    (acked,) = person.heard(frames.PushAcked)
    assert frames.unpacked(acked.offsets) == [3]
    place.node.close()


# --- the metadata ------------------------------------------------------------


def with_revoke() -> tuple[KilledNode, str]:
    """`bob` may publish to `orders` no more."""
    place = with_topic(1)
    admin = place.trusted()
    token_of(admin.ask(frames.CreateUser, "ann", ("admin",)))
    for frame in (
        (frames.CreateRole, "worker"),
        (frames.AddGrant, "worker", Grant("publish", ORDERS)),
    ):
        assert isinstance(admin.ask(*frame), frames.Done)
    token = token_of(admin.ask(frames.CreateUser, "bob", ("worker",)))
    gone = admin.ask(frames.RemoveGrant, "worker", Grant("publish", ORDERS))
    assert isinstance(gone, frames.Done)
    return place, token


def test_a_lost_revoke_is_refused_and_named_until_it_is_accepted(caplog):
    place, token = with_revoke()
    place.kill()
    revoke = place.entries(0)[-1]
    assert revoke.header.kind == EntryKind.ACCESS
    place.lose(revoke)
    before = place.disk.files()
    for _ in range(2):
        said = refusal(place)
        assert f"entry {revoke.header.index} of kind access" in said
        assert "hocket log accept-loss 'the data directory' 0" in said
    assert place.disk.files() == before, "nothing is touched"
    assert not verify(place.disk).ok
    (accepted,) = accept_loss(place.disk, 0)
    assert "of kind access" in str(accepted)
    caplog.clear()
    place.start()
    assert "the metadata goes on without" in warnings(caplog.records)
    bob = place.greeted(token)
    publish(bob)  # the operator was told, and has accepted it
    place.restart()
    admin = place.trusted()
    assert isinstance(
        admin.ask(frames.RemoveGrant, "worker", Grant("publish", ORDERS)), frames.Done
    )
    bob = place.greeted(token)
    answer = bob.ask(frames.Publish, ORDERS, 0, payload=one_batch())
    assert is_refused(answer)
    place.node.close()


def every_entry_of_the_metadata() -> list[Stored]:
    place = with_everything()
    place.kill()
    return place.entries(0)


def with_everything() -> KilledNode:
    """Topics that come, change and go, users, roles, grants, and two transactions."""
    place, _ = with_revoke()
    admin = place.trusted()
    config = replace(KEPT, partitions=2)
    for frame in (
        (frames.CreateTopic, "gone", KEPT),
        (frames.CreateTopic, "grown", KEPT),
        (frames.AlterTopic, "grown", config),
        (frames.DeleteTopic, "gone"),
        (frames.CreateTopic, "gone", KEPT),
        (frames.CreateRole, "other"),
        (frames.AddGrant, "other", Grant("subscribe")),
        (frames.SetRoles, "bob", ("other",)),
        (frames.DeleteRole, "other"),
        (frames.DeleteUser, "bob"),
    ):
        assert isinstance(admin.ask(*frame), frames.Done), frame
    for topic in ("gone", "grown"):
        publish(admin, topic=topic)
    for number in (1, 2):
        transact(admin, number)
    return place


def transact(person: Person, number: int) -> None:
    from hocket.core.partition.stages import crc_of
    from hocket.model import Participant

    opened = person.ask(frames.OpenProducer, ORDERS, transaction="tx", number=number)
    assert isinstance(opened, frames.ProducerOpened), opened
    push(person, opened.handle, opened.producer_id, 0)
    batch = one_batch(b"0", producer_id=opened.producer_id, sequence=0)
    crc = crc_of([int.from_bytes(batch[44:48], "little")])
    member = Participant(ORDERS, 0, opened.producer_id, 1, 1, crc)
    request = person.say(frames.CommitTransaction, "tx", number, (member,))
    for _ in range(5):
        person.place.settle()
        person.place.node.tick()
    person.place.settle()
    assert isinstance(person.answer(request), frames.Done), person.answer(request)


@pytest.mark.parametrize("lost", range(len(every_entry_of_the_metadata())))
def test_the_metadata_goes_on_without_any_entry_once_that_is_accepted(lost):
    place = with_everything()
    place.kill()
    entry = place.entries(0)[lost]
    place.lose(entry)
    assert f"entry {entry.header.index} of kind" in refusal(place)
    assert len(accept_losses(place.disk, None)) == 1
    for _ in range(2):
        place.start()
        admin = place.trusted()
        listed = admin.ask(frames.ListTopics)
        assert isinstance(listed, frames.Topics)
        found = 0
        for topic in [each.name for each in listed.topics]:
            found += read(place, topic)
            publish(admin, topic=topic)
        assert found >= 5, "no record is lost with its topic"
        assert isinstance(admin.ask(frames.CreateTopic, f"new{_}", KEPT), frames.Done)
        assert publish(admin, topic=f"new{_}") == 0
        place.kill()


def read(place: KilledNode, topic: str) -> int:
    """How many records there are from beginning to end."""
    person = reader(place, topic=topic)
    assert not person.heard(frames.HandleEnded), person.told
    return max((frame.end for frame in person.heard(frames.Deliver)), default=0)


# --- files ------------------------------------------------------------


def test_a_wal_file_that_is_gone_is_missed():
    place = with_topic(3)
    place.kill()
    place.disk.remove(place.entries(1)[0].path)
    said = refusal(place)
    assert "is gone" in said
    assert "accept-loss" in said
    accept_loss(place.disk, 0)
    place.start()
    assert not place.node._wiring.catalogue.topics
    place.node.close()


def doubtful() -> KilledNode:
    """The metadata is known to be whole, and the end of the partition is not known."""
    place = with_topic(3)
    place.node.close()
    place.kill_at_once()
    place.start()
    person = place.trusted()
    publish(person)
    place.kill()
    place.disk.remove(place.entries(1)[-1].path)
    accept_loss(place.disk, 0)
    place.start()
    return place


def test_a_partition_whose_end_is_lost_takes_nothing_until_that_is_accepted():
    place = doubtful()
    group = place.group_of(ORDERS)
    for _ in range(2):
        said = refused_publish(place.trusted())
        assert "partition 0 of topic 'orders'" in said
        assert "what followed offset 3" in said
        assert f"hocket log accept-loss 'the data directory' {group}" in said
        assert "what followed offset 3" in problem(place)
        person = reader(place)
        assert person.heard(frames.Deliver)[0].end == 3, "what is there is served"
        assert "what followed offset 3" in ended(person), "a reader does not wait in vain"
        answer = place.trusted().ask(frames.OpenSubscription, ORDERS, "index", credit_bytes=1)
        assert isinstance(answer, frames.Failure)
        place.restart()
        assert verify_is_bad(place)
    place.kill()
    (accepted,) = accept_loss(place.disk, group)
    assert accepted.end is None
    place.start()
    assert publish(place.trusted()) == 3
    assert problem(place) == ""
    place.kill()
    (last,) = [each.path for each in place.entries(group)]
    place.disk.remove(last)
    said = refusal(place)
    assert "is gone" in said, "what was accepted once is not accepted for ever"
    accept_loss(place.disk, 0)
    place.start()
    assert "what followed offset 3" in refused_publish(place.trusted())
    place.node.close()


def verify_is_bad(place: KilledNode) -> bool:
    place.kill()
    found = not verify(place.disk).ok
    place.start()
    return found


def test_a_partition_that_nothing_was_found_of_is_in_doubt_too():
    place = with_topic()
    place.node.close()
    place.kill_at_once()
    place.start()
    publish(place.trusted())
    place.kill()
    place.disk.remove(place.entries(1)[0].path)
    accept_loss(place.disk, 0)
    place.start()
    assert "what followed offset 0" in refused_publish(place.trusted())
    place.kill()
    assert accept_losses(place.disk, None)
    place.start()
    assert publish(place.trusted()) == 0
    place.node.close()


@pytest.mark.parametrize("sectors", [0, 1, 3, 6, 100, 2047])
def test_a_wal_file_that_was_cut_is_damage(sectors):
    place = with_topic(5)
    place.kill()
    path = place.entries(1)[0].path
    file = place.disk.open(path)
    file.truncate(sectors * 512)
    said = refusal(place)
    assert "is cut short" in said or sectors == 0
    assert "accept-loss" in said
    assert any("is cut short" in each for each in verify(place.disk).remarks)
    accept_losses(place.disk, None)
    place.start()
    person = place.trusted()
    if ORDERS not in place.node._wiring.catalogue.topics:
        person.ask(frames.CreateTopic, ORDERS, KEPT)
    publish(person)
    place.restart()
    publish(place.trusted())
    place.node.close()
    assert f"damaged/{path[4:]}" in place.disk.files()


def test_a_file_that_was_being_made_is_not_damage():
    place = with_topic(1)
    place.kill()
    file = place.disk.open("wal/new", create=True)
    file.write([bytes(700)], 0)
    place.start()
    assert not place.node._wiring.log.remarks
    assert problem(place) == ""
    assert publish(place.trusted()) == 1
    place.node.close()


# --- what the directory is ------------------------------------------------------------


@pytest.mark.parametrize("name", [IDENTITY, COPY])
def test_every_byte_of_hocket_json(name):
    place = with_topic(1)
    place.kill()
    whole = read_file(place.disk, name)
    for position in range(len(whole)):
        place.disk.flip(name, position, 1 << position % 8)
        place.start()
        assert read_file(place.disk, name) == whole, "it is written anew"
        place.kill_at_once()
    place.disk.remove(name)
    place.start()
    assert name in place.node._wiring.log.remarks[0]
    assert read_file(place.disk, name) == whole
    assert read(place, ORDERS) == 1
    place.node.close()


def test_both_copies_damaged_are_refused_and_change_nothing():
    place = with_topic(1)
    place.kill()
    for name in (IDENTITY, COPY):
        place.disk.flip(name, 30)
    before = place.disk.files()
    assert "from a copy of the directory" in refusal(place)
    assert place.disk.files() == before
    for name in (IDENTITY, COPY):
        place.disk.flip(name, 30)
    place.start()
    assert read(place, ORDERS) == 1
    place.node.close()


def as_old_versions_wrote_it(place: KilledNode, store_id: str) -> None:
    place.disk.remove(COPY)
    file = place.disk.open(IDENTITY)
    file.truncate(0)
    file.write([b'{"format": 1, "store": "%s"}' % store_id.encode()], 0)


def test_a_directory_of_an_older_version_opens_and_gets_a_checksum():
    place = with_topic(1)
    store_id = place.node._wiring.log.store_id
    place.kill()
    whole = read_file(place.disk, IDENTITY)
    as_old_versions_wrote_it(place, store_id)
    place.disk.remove("wal.files")
    place.start()
    assert not place.node._wiring.log.remarks
    assert read_file(place.disk, IDENTITY) == read_file(place.disk, COPY) == whole
    assert read(place, ORDERS) == 1
    place.node.close()


def test_files_of_another_store_are_set_aside_and_never_used_again():
    """An older version's hocket.json, damaged: nothing is lost when it is put right."""
    place = with_topic(2)
    store_id = place.node._wiring.log.store_id
    place.kill()
    as_old_versions_wrote_it(place, "another")
    before = place.wal_files()
    said = refusal(place)
    assert "has no envelope of this store" in said
    assert place.wal_files()[0] == before[0]
    for name in (IDENTITY, COPY):
        write_checked(place.disk, name, {"format": 1, "store": store_id})
    place.start()
    assert read(place, ORDERS) == 2
    place.node.close()


def test_a_damaged_note_of_what_was_accepted_accepts_nothing():
    place = with_topic(1)
    place.kill()
    place.lose(place.entries(1)[0])
    accept_loss(place.disk, 1)
    place.disk.flip("accepted.json", 10)
    assert any("accepted.json" in each for each in verify(place.disk).remarks)
    place.start()
    assert "offsets 0 to 0" in problem(place)
    place.node.close()
