"""Staging for a transaction, and asking for its end, frame by frame."""

from __future__ import annotations

from itertools import accumulate

import pytest
from crc32c import crc32c

from hocket import frames
from hocket.client_core.producing.delivery import ProducerOptions
from hocket.client_core.producing.staging import (
    FRAME_BYTES_MAX,
    Deciding,
    StagingCore,
    abort_of,
    check_participants,
    in_parts,
    participants_of,
    producers_of,
)
from hocket.errors import (
    Closed,
    Fenced,
    HocketError,
    MessageTooLarge,
    OutOfRange,
    StorageFull,
    Timeout,
    TransactionAborted,
    UnknownTopic,
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

    def broken(self) -> HocketError:
        with pytest.raises(HocketError) as caught:
            self.core.is_staged()
        with pytest.raises(type(caught.value)):
            self.send(b"more")
        return caught.value


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


def test_one_acknowledgement_stands_for_all_before_it():
    staging = Staging()
    for value in (b"a", b"b", b"c"):
        staging.send(value)
        staging.core.cut_all()
        staging.take_push()
    staging.ack(2)
    assert staging.core.is_staged()
    assert staging.core.participants()[0].batches == 3


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


def test_what_the_broker_has_dropped_is_the_end_of_the_transaction():
    """Also if all of it had been acknowledged, and nothing waits."""
    staging = Staging()
    staging.send(b"a")
    staging.take_push()
    staging.ack(0)
    staging.stage.lose()
    staging.stage.come_back()
    staging.opened(sequences=[0])
    error = staging.broken()
    assert isinstance(error, TransactionAborted)
    assert "'job' number 7" in str(error)


@pytest.mark.parametrize("code", ["fenced", "notAllowed", "unknownTopic"])
def test_a_handle_that_is_ended_ends_the_transaction(code):
    staging = Staging()
    staging.send(b"a")
    staging.take_push()
    staging.ack(0)
    staging.stage.reply(frames.HandleEnded(0, 1, code, "no more"))
    assert staging.broken().code == code
    assert staging.stage.take_all() == []  # nobody opens another one in its place


def test_a_broker_that_goes_down_does_not_end_it():
    staging = Staging()
    staging.stage.reply(frames.HandleEnded(0, 1, "shuttingDown", "a moment"))
    staging.stage.advance(1_000_000)
    staging.opened()
    staging.send(b"a")
    staging.take_push()
    staging.ack(0)
    assert staging.core.is_staged()


def test_a_batch_that_is_refused_ends_the_transaction():
    staging = Staging()
    staging.send(b"a")
    staging.take_push()
    staging.stage.reply(frames.PushRefused(0, 1, 0, 0, "tooLarge", "too much"))
    assert staging.stage.kinds() == ["CloseHandle", "OpenProducer"]
    staging.stage.take(frames.CloseHandle)
    staging.opened()
    assert isinstance(staging.broken(), MessageTooLarge)


@pytest.mark.parametrize("code", ["transactionConflict", "fenced", "producerConflict"])
def test_an_id_that_somebody_else_uses_ends_the_transaction_at_once(code):
    """What is staged already cannot be staged again under another id."""
    staging = Staging()
    staging.send(b"a")
    staging.take_push()
    staging.stage.reply(frames.PushRefused(0, 1, 0, 0, code, "other content"))
    assert staging.broken().code == code
    assert staging.stage.kinds() == ["CloseHandle"]


def test_what_cannot_be_staged_in_time_ends_the_transaction():
    staging = Staging()
    staging.stage.lose()
    staging.send(b"a")
    staging.stage.advance(61_000_000)
    assert isinstance(staging.broken(), Timeout)


def test_a_refused_opening_is_what_went_wrong():
    stage = Stage().started()
    core = StagingCore(stage.session, "t", ProducerOptions(), "job", 7)
    core.open()
    asked = stage.take(frames.OpenProducer)
    stage.reply(frames.Failure(asked.request, "unknownTopic", "no such topic"))
    with pytest.raises(UnknownTopic):
        core.check_whole()


def test_all_ids_under_which_something_may_be_staged_are_known():
    """A batch that was refused has cost the first one; what came behind it got another."""
    staging = Staging()
    staging.send(b"a")
    staging.take_push()
    assert staging.core.producer_ids == [ID]
    staging.stage.reply(frames.PushRefused(0, 1, 0, 0, "outOfRange", "nonsense"))
    staging.stage.take(frames.CloseHandle)
    staging.opened()
    staging.stage.take(frames.CloseHandle)
    asked = staging.stage.take(frames.OpenProducer)
    assert asked.producer_id == b""
    other = b"j" * 16
    staging.stage.reply(frames.ProducerOpened(asked.request, 1, other, 0, 1, packed([0])))
    assert producers_of([staging.core]) == [ID, other]
    assert isinstance(staging.broken(), OutOfRange)


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


def test_it_is_asked_again_while_the_broker_is_busy():
    stage = Stage().started()
    deciding = Deciding(stage.session, frames.AbortTransaction(0, "job", 7, (ID,)))
    for code in ("busy", "storageFull"):
        asked = stage.take(frames.AbortTransaction)
        stage.reply(frames.Failure(asked.request, code, "not now"))
        assert deciding.reply.get() is None
        assert deciding.refusal is not None
        assert deciding.refusal.code == code
        stage.advance(1_000_000)
    asked = stage.take(frames.AbortTransaction)
    stage.reply(frames.Done(asked.request))
    assert deciding.reply.get() == frames.Done(asked.request)
    deciding.cancel()


@pytest.mark.parametrize("loses", [False, True])
def test_a_disk_that_stays_full_is_the_answer_after_some_seconds(loses):
    stage = Stage().started()
    deciding = Deciding(stage.session, frames.CommitTransaction(0, "job", 7, ()))
    if loses:  # what was asked before that may be decided
        stage.take(frames.CommitTransaction)
        stage.lose()
        stage.come_back()
    asked_for_us = 0
    while deciding.reply.get() is None:
        for frame in stage.take_all():
            stage.reply(frames.Failure(frame.request, "storageFull", "the disk of x is full"))
        stage.advance(10_000)
        asked_for_us += 10_000
        assert asked_for_us < 10_000_000
    answer = deciding.reply.get()
    assert asked_for_us > 2_900_000
    assert isinstance(answer, StorageFull)
    assert answer.may_have_happened is loses


def test_after_a_lost_link_it_is_asked_again():
    """The broker knows what it has decided; to ask twice does no harm."""
    stage = Stage().started()
    deciding = Deciding(stage.session, frames.CommitTransaction(0, "job", 7, ()))
    stage.take(frames.CommitTransaction)
    stage.lose()
    stage.come_back()
    asked = stage.take(frames.CommitTransaction)
    stage.reply(frames.Failure(asked.request, "fenced", "for good"))
    assert isinstance(deciding.reply.get(), Fenced)


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


def test_whoever_gives_up_is_not_answered():
    stage = Stage().started()
    waiting = Deciding(stage.session, frames.AbortTransaction(0, "job", 7, (ID,)))
    asked = stage.take(frames.AbortTransaction)
    stage.reply(frames.Failure(asked.request, "busy", "not now"))
    waiting.cancel()
    stage.advance(1_000_000)
    assert stage.take_all() == []
    away = Deciding(stage.session, frames.AbortTransaction(0, "job", 7, (ID,)))
    asked = stage.take(frames.AbortTransaction)
    away.cancel()
    stage.reply(frames.Done(asked.request))
    assert away.reply.get() is None


def test_a_client_that_is_closed_while_it_waits_to_ask_again():
    stage = Stage().started()
    deciding = Deciding(stage.session, frames.AbortTransaction(0, "job", 7, (ID,)))
    asked = stage.take(frames.AbortTransaction)
    stage.reply(frames.Failure(asked.request, "busy", "not now"))
    stage.session.close(Closed("the client is closed"))
    stage.advance(1_000_000)
    assert isinstance(deciding.reply.get(), Closed)
