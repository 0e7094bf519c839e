from __future__ import annotations

import pytest

from hocket import frames
from hocket.errors import (
    Closed,
    NoConnection,
    ProtocolError,
)
from tests.support.client.scripted import Answers, Stage


class Owner:
    def __init__(self) -> None:
        self.history: list[str] = []
        self.error = None

    def link_up(self) -> None:
        self.history.append("up")

    def link_down(self) -> None:
        self.history.append("down")

    def received(self, frame, payload) -> None:
        if isinstance(frame, frames.Moved):
            raise ProtocolError("that was wrong")
        self.history.append(f"{type(frame).__name__} {bytes(payload)!r}")

    def deliver(self) -> bool:
        return True

    def end(self, error) -> None:
        self.history.append("end")
        self.error = error


def ask(stage: Stage, answers: Answers, **options):
    return stage.session.request(frames.DescribeTopic(0, "t"), answers, **options)


# --- links ---------------------------------------------------------------------------------------


def test_it_says_who_it_is_and_is_ready_when_welcome():
    stage = Stage()
    woken = []
    stage.session.start()
    assert stage.opens == [0]
    stage.session.changed.add(lambda: woken.append(stage.session.state))
    stage.open()
    hello = stage.take(frames.Hello)
    assert (hello.client, hello.token) == ("a test", "secret")
    assert stage.session.state == "greeting"
    stage.limits.in_flight_max = 3
    stage.reply(frames.Welcome(hello.request, 1, "n", "s", (), stage.limits))
    assert (woken, stage.session.limits.in_flight_max) == (["ready"], 3)


def test_an_old_link_is_not_listened_to():
    stage = Stage().started()
    old = stage.end
    stage.lose()
    stage.come_back()
    answers = Answers()
    request = ask(stage, answers)
    old.received(None, [(frames.Done(request.frame.request), memoryview(b""))])
    old.lost(None, NoConnection("late news"))
    assert not answers
    assert stage.session.state == "ready"


def test_a_link_that_comes_after_the_end_is_closed():
    stage = Stage()
    stage.session.start()
    stage.session.close(Closed("done"))
    assert stage.open().closed
    assert stage.link.sent == []


def test_a_broker_in_the_same_process_that_is_closed_does_not_come_back():
    stage = Stage().started()
    stage.lose("gone")
    stage.advance(10_000_000)
    stage.fail_to_open(Closed("the broker is closed"))
    with pytest.raises(Closed, match="broker is closed"):
        stage.session.check_open()


# --- requests ------------------------------------------------------------------------------------


def test_an_answer_comes_once():
    stage = Stage().started()
    answers = Answers()
    request = ask(stage, answers)
    for _ in range(2):
        stage.reply(frames.Done(request.frame.request))
    assert len(answers) == 1


def test_a_cancelled_request_is_not_answered():
    stage = Stage().started()
    answers = Answers()
    request = ask(stage, answers)
    stage.session.cancel(request)
    stage.reply(frames.Done(request.frame.request))
    stage.lose()
    assert not answers


def test_the_end_answers_everything():
    stage = Stage().started()
    answers, owner = Answers(), Owner()
    ask(stage, answers)
    stage.session.add(owner)
    stage.session.close(Closed("over"))
    assert isinstance(answers[0], Closed)
    assert owner.history == ["up", "end"]
    assert stage.link.closed
    with pytest.raises(Closed):
        ask(stage, Answers())
    with pytest.raises(Closed):
        stage.session.add(Owner())


# --- owners --------------------------------------------------------------------------------------


def test_owners_hear_of_links_and_get_what_is_for_their_handle():
    stage = Stage()
    owner = Owner()
    stage.session.start()
    stage.session.add(owner)
    stage.welcome()
    stage.session.handles[5] = owner
    stage.reply(frames.Deliver(0, 5, 0, 0, 0), b"payload")
    stage.reply(frames.Deliver(0, 6, 0, 0, 0), b"for somebody who is gone")
    stage.lose()
    stage.come_back()
    stage.reply(frames.Deliver(0, 5, 0, 0, 0), b"an old handle")
    assert owner.history == ["up", "Deliver b'payload'", "down", "up"]


def test_what_is_for_several_handles_goes_to_each_of_them():
    stage = Stage().started()
    owners = [Owner(), Owner()]
    for handle, owner in zip((5, 7), owners, strict=True):
        stage.session.add(owner)
        stage.session.handles[handle] = owner
    stage.reply(frames.DeliverAlike(0, frames.packed([5, 6, 7]), 0, 0, 0), b"payload")
    assert [owner.history for owner in owners] == [["up", "Deliver b'payload'"]] * 2
    stage.reply(frames.DeliverAlike(0, b"no numbers", 0, 0, 0), b"payload")
    assert [owner.history[2:] for owner in owners] == [["down"]] * 2


def test_an_ended_handle_is_forgotten():
    stage = Stage().started()
    owner = Owner()
    stage.session.add(owner)
    stage.session.handles[5] = owner
    stage.reply(frames.HandleEnded(0, 5, "fenced", "by another"))
    stage.reply(frames.Deliver(0, 5, 0, 0, 0))
    assert owner.history == ["up", "HandleEnded b''"]


def test_a_breach_of_the_protocol_costs_the_link_and_no_more():
    stage = Stage().started()
    owner = Owner()
    stage.session.add(owner)
    stage.session.handles[5] = owner
    link = stage.link
    stage.reply(frames.Moved(0, 5, 0, 0, 0))
    assert link.closed
    assert owner.history == ["up", "down"]
    stage.link = None
    stage.come_back()
    assert stage.session.state == "ready"
