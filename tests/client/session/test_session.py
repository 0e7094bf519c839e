from __future__ import annotations

from functools import partial

import pytest

from hocket import frames
from hocket.client_core.session.session import GREETING_US, SILENCE_US
from hocket.errors import (
    AnotherCluster,
    Busy,
    Closed,
    NoConnection,
    NotAllowed,
    ProtocolError,
    ReplyLost,
    UnknownTopic,
    WrongVersion,
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


def test_the_first_connection_is_tried_at_every_address_once():
    stage = Stage(address_count=3)
    stage.session.start()
    for number in range(3):
        assert stage.opens == list(range(number + 1))
        stage.fail_to_open("connection refused")
        stage.advance(0)
    assert stage.session.state == "closed"
    with pytest.raises(NoConnection, match=r"hocket://scripted:1.*refused.*hocket serve"):
        stage.session.check_open()


def test_a_second_address_does():
    stage = Stage(address_count=2)
    stage.session.start()
    stage.fail_to_open()
    stage.advance(0)
    stage.welcome()
    assert stage.session.state == "ready"


def test_after_a_loss_it_comes_back_with_growing_delays_and_never_gives_up():
    stage = Stage().started()
    stage.lose()
    delays = []
    for _ in range(12):
        before = stage.clock.ticks
        opens = len(stage.opens)
        while len(stage.opens) == opens:
            stage.advance(1000)
        delays.append(stage.clock.ticks - before)
        stage.fail_to_open()
    assert delays[0] <= 21_000
    assert 2_500_000 <= delays[-1] <= 5_001_000
    assert stage.session.state == "down"


def test_a_link_that_held_begins_with_a_short_delay_again_and_one_that_did_not_does_not():
    stage = Stage().started()
    for _ in range(6):
        stage.lose()
        stage.come_back()
        stage.take_all()
    stage.lose()  # at once again: the delay goes on growing
    stage.advance(21_000)
    assert stage.session.state == "down"
    stage.come_back()
    stage.advance(2_000_000)
    stage.lose()
    stage.advance(21_000)
    assert stage.session.state == "opening"


@pytest.mark.parametrize(
    ("code", "kind"), [("notAllowed", NotAllowed), ("wrongVersion", WrongVersion)]
)
def test_who_is_refused_for_good_does_not_try_again(code, kind):
    stage = Stage()
    stage.session.start()
    link = stage.open()
    hello = stage.take(frames.Hello)
    stage.reply(frames.Failure(hello.request, code, "no"))
    with pytest.raises(kind):
        stage.session.check_open()
    assert link.closed
    stage.advance(60_000_000)
    assert stage.opens == [0]


def test_who_is_refused_for_the_moment_does():
    stage = Stage().started()
    stage.lose()
    stage.advance(10_000_000)
    stage.open()
    hello = stage.take(frames.Hello)
    stage.reply(frames.Failure(hello.request, "busy", "too many"))
    assert stage.session.state == "down"
    assert isinstance(stage.session.last_error, Busy)
    stage.link = None
    stage.come_back()
    assert stage.session.state == "ready"


@pytest.mark.parametrize(
    "first", [frames.Done(1), frames.Welcome(1, 99, "n", "s", (), Stage().limits)]
)
def test_a_broker_that_answers_hello_with_nonsense_is_hung_up_on(first):
    stage = Stage().started()
    stage.lose()
    stage.advance(10_000_000)
    link = stage.open()
    stage.reply(first)
    assert link.closed
    assert isinstance(stage.session.last_error, ProtocolError)


def test_a_broker_that_does_not_answer_hello_is_given_up():
    stage = Stage().started()
    stage.lose()
    stage.advance(10_000_000)
    link = stage.open()
    stage.advance(GREETING_US - 1)
    assert not link.closed
    stage.advance(1)
    assert link.closed
    assert "did not answer" in str(stage.session.last_error)


def test_a_silent_link_is_asked_and_then_given_up():
    stage = Stage().started()
    stage.advance(SILENCE_US)
    stage.reply(frames.Done(stage.take(frames.Ping).request))
    stage.advance(SILENCE_US)
    stage.take(frames.Ping)
    link = stage.link
    stage.advance(SILENCE_US - 1)
    assert not link.closed
    stage.advance(1)
    assert link.closed
    assert "nothing was heard" in str(stage.session.last_error)


def test_bytes_of_a_long_frame_are_not_silence():
    stage = Stage().started()
    for _ in range(10):
        stage.advance(SILENCE_US)
        stage.link.arrivals += 1
    assert not stage.link.closed


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


def test_it_answers_pings():
    stage = Stage().started()
    stage.reply(frames.Ping(77))
    assert stage.take(frames.Done).request == 77


# --- requests ------------------------------------------------------------------------------------


def test_answers_find_their_requests_in_any_order():
    stage = Stage().started()
    first, second = Answers(), Answers()
    one, two = ask(stage, first), ask(stage, second)
    assert one.frame.request != two.frame.request
    stage.reply(frames.Topics(two.frame.request, ()))
    assert (len(first), len(second)) == (0, 1)
    stage.reply(frames.Failure(one.frame.request, "unknownTopic", "no such topic"))
    assert isinstance(first[0], UnknownTopic)
    assert str(first[0]) == "no such topic"


def test_a_failure_keeps_what_it_says_about_having_happened():
    stage = Stage().started()
    answers = Answers()
    request = ask(stage, answers)
    stage.reply(frames.Failure(request.frame.request, "neverHeardOf", "?", may_have_happened=True))
    assert answers[0].may_have_happened
    assert answers[0].code == "failed"


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


def test_requests_wait_for_a_link_in_order():
    stage = Stage()
    stage.session.start()
    numbers = [ask(stage, Answers()).frame.request for _ in range(3)]
    stage.welcome()
    assert [stage.take(frames.DescribeTopic).request for _ in range(3)] == numbers


def test_a_request_that_reads_is_repeated_on_the_next_link():
    stage = Stage().started()
    answers = Answers()
    request = ask(stage, answers, repeatable=True)
    stage.take(frames.DescribeTopic)
    stage.lose()
    assert (answers, request.left) == ([], False)
    stage.come_back()
    stage.reply(frames.Done(stage.take(frames.DescribeTopic).request))
    assert len(answers) == 1


def test_a_request_that_changes_something_is_not_repeated_once_it_has_left():
    stage = Stage().started()
    left, waiting = Answers(), Answers()
    ask(stage, left)
    stage.lose("the cable was cut")
    assert isinstance(left[0], ReplyLost)
    assert left[0].may_have_happened
    assert "the cable was cut" in str(left[0])
    ask(stage, waiting)  # this one has not left, so it may
    stage.come_back()
    assert stage.kinds() == ["DescribeTopic"]
    assert not waiting


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


def test_waiting_requests_go_before_owners():
    stage = Stage()
    stage.session.start()

    class Asking(Owner):
        def link_up(self):
            stage.session.request(frames.OpenProducer(0, "t"), Answers())

    stage.session.add(Asking())
    ask(stage, Answers())
    stage.welcome()
    assert stage.kinds() == ["DescribeTopic", "OpenProducer"]


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


# --- which cluster it is ------------------------------------------------------------------------


def greet(stage: Stage, cluster: str) -> None:
    stage.open()
    hello = stage.take(frames.Hello)
    welcome = frames.Welcome(hello.request, 1, "n", "s", (), stage.limits, cluster)
    stage.reply(welcome)


def come_back_to(stage: Stage, cluster: str) -> None:
    stage.lose()
    stage.advance(10_000_000)
    greet(stage, cluster)


def test_it_belongs_to_the_cluster_that_it_met_first():
    stage = Stage()
    stage.session.start()
    greet(stage, "one")
    come_back_to(stage, "one")
    come_back_to(stage, "")  # a broker that does not say
    assert (stage.session.state, stage.session.cluster) == ("ready", "one")
    come_back_to(stage, "another")
    assert stage.session.state == "closed"
    with pytest.raises(AnotherCluster, match=r"cluster another \(node n\).*cluster one"):
        stage.session.check_open()


def test_it_learns_the_cluster_of_a_broker_that_did_not_say_at_first():
    stage = Stage()
    stage.session.start()
    greet(stage, "")
    come_back_to(stage, "one")
    assert stage.session.cluster == "one"


def test_another_cluster_is_asked_nothing_and_what_was_in_flight_may_have_happened():
    stage = Stage()
    stage.session.start()
    greet(stage, "one")
    answers = {}
    frames_of = {
        "commit": frames.CommitTransaction(0, "t", 1, ()),
        "read": frames.ListTopics(0),
    }
    for name, frame in frames_of.items():
        stage.session.request(frame, partial(answers.__setitem__, name), repeatable=True)
    stage.lose()
    stage.session.request(
        frames.CommitTransaction(0, "t", 2, ()), partial(answers.__setitem__, "late"),
        repeatable=True,
    )  # fmt: skip
    stage.advance(10_000_000)
    greet(stage, "another")
    assert stage.kinds() == []
    assert {name: type(answer) for name, answer in answers.items()} == dict.fromkeys(
        ("commit", "read", "late"), AnotherCluster
    )
    assert [answers[name].may_have_happened for name in ("commit", "read", "late")] == [
        True, False, False,
    ]  # fmt: skip
