"""Staging for a transaction: what a commit names, in how many frames, and what callers may give.

Everything else that can happen to a transaction is in `tests/client/traces/transaction`.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
from crc32c import crc32c

from hocket import frames
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.staging import (
    FRAME_BYTES_MAX,
    Deciding,
    StagingCore,
    abort_of,
    check_participants,
    in_parts,
    participants_of,
)
from hocket.errors import (
    MessageTooLarge,
    WrongType,
)
from hocket.frames import packed
from hocket.model import Participant
from hocket.wire.entry import unpack_header
from hocket.wire.frame_codec import encode
from hocket.wire.framing import HEADER_BYTES_MAX
from tests.support.client.scripted import Stage

ID = b"i" * 16


class Staging:
    def __init__(self, *, partitions: int = 1) -> None:
        self.stage = Stage().started()
        options = ProducerOptions(linger_us=0, delivery_us=60_000_000)
        self.core = StagingCore(self.stage.session, "t", options, "job", 7)
        self.core.open()
        self.partitions = partitions
        self.crcs: list[int] = []
        self.opened()

    def opened(self, *, sequences: list[int] | None = None) -> None:
        asked = self.stage.take(frames.OpenProducer)
        assert (asked.transaction, asked.number) == ("job", 7)
        answer = frames.ProducerOpened(
            asked.request, 1, asked.producer_id or ID, 0, self.partitions,
            packed(sequences or [0] * self.partitions),
        )  # fmt: skip
        self.stage.reply(answer)

    def send(self, value: bytes, partition: int = 0) -> None:
        gathering = self.core.gathering_of(None, partition)
        assert self.core.offer(gathering, (value, None, None, None, None), len(value) + 12)

    def take_push(self) -> None:
        _, payload = self.stage.take_with_payload(frames.Push)
        self.crcs.append(unpack_header(payload).body_crc)

    def ack(self, sequence: int, partition: int = 0) -> None:
        self.stage.reply(frames.PushAcked(0, 1, partition, sequence, b""))


def crc_over(*crcs: int) -> int:
    return crc32c(b"".join(crc.to_bytes(4, "little") for crc in crcs))


def test_what_is_acknowledged_is_what_the_commit_names():
    staging = Staging(partitions=2)
    staging.send(b"a")
    staging.take_push()
    staging.send(b"b")
    staging.send(b"c")
    assert not staging.core.is_staged()
    staging.ack(0)
    staging.take_push()
    staging.ack(1)
    staging.send(b"d", partition=1)
    staging.take_push()
    staging.ack(0, partition=1)
    assert staging.core.is_staged()
    first, second, third = staging.crcs
    assert participants_of([staging.core]) == (
        Participant("t", 0, ID, 2, 3, crc_over(first, second)),
        Participant("t", 1, ID, 1, 1, crc_over(third)),
    )


def test_after_a_lost_link_what_was_not_acknowledged_is_pushed_again():
    staging = Staging()
    staging.send(b"a")
    staging.take_push()
    staging.stage.lose()
    staging.stage.come_back()
    staging.opened(sequences=[1])
    staging.take_push()
    staging.ack(0)
    assert staging.core.is_staged()
    assert staging.crcs[0] == staging.crcs[1]


# --- what was prepared ---------------------------------------------------------------------------


def test_an_abort_names_each_producer_once_and_nobody_is_no_abort():
    assert abort_of("job", 7, [ID, b"j" * 16, ID]) == frames.AbortTransaction(
        0, "job", 7, (ID, b"j" * 16)
    )
    assert abort_of("job", 7, []) is None


def test_participants_are_what_prepare_has_returned():
    one = Participant("t", 0, ID, 1, 1, 5)
    assert check_participants([one, one]) == (one, one)
    assert check_participants(iter([one])) == (one,)
    assert check_participants(()) == ()
    for wrong in (one, None, "t", b"t", 5, ["t"], [one, None], [("t", 0, ID, 1, 1, 5)]):
        with pytest.raises(WrongType):
            check_participants(wrong)


# --- deciding ------------------------------------------------------------------------------------


MANY = tuple(Participant("t" * 250, n, ID, 1, 1, 5) for n in range(10_000))


def test_many_participants_are_named_in_parts_that_fit_their_frames():
    commit = frames.CommitTransaction(0, "job" * 80, 7, MANY)
    *parts, last = in_parts(commit)
    assert len(parts) > 3
    for part in (*parts, last):
        assert len(encode(part)) < HEADER_BYTES_MAX
    starts = [part.start for part in parts]
    assert starts == [0, *accumulate(len(part.participants) for part in parts)][:-1]
    named = tuple(each for part in parts for each in part.participants)
    assert (last.named, named + last.participants) == (len(named), MANY)


def test_what_fits_into_one_frame_goes_in_one():
    most = FRAME_BYTES_MAX // (64 + 250)
    assert in_parts(commit_of(most)) == [commit_of(most)]
    assert len(in_parts(commit_of(most + 1))) > 1
    assert 0.9 * HEADER_BYTES_MAX < len(encode(commit_of(most))) <= HEADER_BYTES_MAX


def commit_of(count: int) -> frames.CommitTransaction:
    return frames.CommitTransaction(0, "job" * 80, 7, MANY[:count])


def test_after_a_lost_link_all_parts_are_sent_again():
    stage = Stage(features=(frames.COMMIT_IN_PARTS,)).started()
    deciding = Deciding(stage.session, frames.CommitTransaction(0, "job", 7, MANY))
    *parts, _ = stage.take_all()
    for part in parts:
        stage.reply(frames.Done(part.request))
    stage.lose()
    stage.come_back()
    *again, commit = stage.take_all()
    assert [part.start for part in again] == [part.start for part in parts]
    for part in again:
        stage.reply(frames.Done(part.request))
    assert deciding.reply.get() is None
    stage.reply(frames.Done(commit.request))
    assert deciding.reply.get() == frames.Done(commit.request)


def test_a_part_that_is_refused_says_why():
    stage = Stage(features=(frames.COMMIT_IN_PARTS,)).started()
    deciding = Deciding(stage.session, frames.CommitTransaction(0, "job", 7, MANY))
    for code in ("busy", "notAllowed"):
        first, *others, commit = stage.take_all()
        stage.reply(frames.Failure(first.request, code, "the first one"))
        for part in others:
            stage.reply(frames.Failure(part.request, "outOfRange", "a part is missing"))
        stage.reply(frames.Failure(commit.request, "outOfRange", "name them again"))
        if code == "busy":
            assert deciding.reply.get() is None
            stage.advance(1_000_000)
    assert str(deciding.reply.get()) == "the first one"


def test_a_broker_that_knows_of_no_parts_is_not_sent_any():
    stage = Stage().started()
    deciding = Deciding(stage.session, frames.CommitTransaction(0, "job", 7, MANY))
    assert stage.take_all() == []
    assert isinstance(deciding.reply.get(), MessageTooLarge)
