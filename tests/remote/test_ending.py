"""How a connection between two processes ends: the core, alone and two of them joined."""

import random

import pytest

from hocket.errors import ProtocolError
from hocket.remote import ending
from hocket.remote.ending import (
    CloseInbound,
    Cut,
    Drained,
    End,
    Ending,
    Finished,
    HeardAbort,
    HeardAborted,
    HeardClose,
    HeardDrained,
    Lost,
    Seize,
    SendAbort,
    SendClose,
    SendDrained,
)


def test_a_graceful_end_needs_the_word_of_both_sides():
    core = Ending()
    assert core.step(Drained()) == []  # nothing was closed
    assert core.step(Finished()) == [SendClose()]
    assert core.step(Finished()) == []
    assert core.step(HeardClose()) == [CloseInbound()]
    assert core.step(Drained()) == [SendDrained()]
    assert core.step(Drained()) == []
    assert core.step(HeardDrained()) == [End("", None)]
    assert core.step(Lost("later")) == []


def test_the_side_that_hears_of_the_close_may_end_last():
    core = Ending()
    assert core.step(HeardClose()) == [CloseInbound()]
    assert core.step(Finished()) == [SendClose()]
    assert core.step(HeardDrained()) == []
    assert core.step(Drained()) == [SendDrained(), End("", None)]


def test_an_abort_ends_with_the_answer():
    core = Ending()
    assert core.step(Cut(5, "why")) == [SendAbort(5, "why")]
    assert core.step(Cut(5, "again")) == core.step(Finished()) == core.step(Drained()) == []
    assert core.step(HeardClose()) == []
    assert core.step(HeardAborted(3)) == [End("why", 3)]


def test_who_is_told_of_an_abort_says_what_it_took_and_ends():
    core = Ending()
    assert core.step(HeardAbort(4, "theirs")) == [Seize("theirs"), End("theirs", 4)]


def test_two_aborts_that_cross_answer_each_other():
    core = Ending()
    core.step(Cut(1, "mine"))
    assert core.step(HeardAbort(7, "theirs")) == [End("mine", 7)]


def test_an_abort_that_came_too_late_has_cut_nothing():
    core = Ending()
    for event in (Finished(), HeardClose(), Drained(), Cut(0, "late")):
        core.step(event)
    assert core.step(HeardDrained()) == [End("", None)]


@pytest.mark.parametrize("aborting", [True, False])
def test_a_way_that_is_lost_leaves_the_count_unknown(aborting):
    core = Ending()
    if aborting:
        core.step(Cut(2, "mine"))
    assert core.step(Lost("broken")) == [End("mine" if aborting else "broken", None)]


@pytest.mark.parametrize(
    "events", [[HeardDrained()], [HeardAborted(1)], [HeardClose(), HeardClose()]]
)
def test_what_makes_no_sense_is_refused(events):
    core = Ending()
    for event in events[:-1]:
        core.step(event)
    with pytest.raises(ProtocolError):
        core.step(events[-1])


WIRE = {
    SendClose: lambda effect: HeardClose(),
    SendDrained: lambda effect: HeardDrained(),
    SendAbort: lambda effect: HeardAbort(effect.taken, effect.why),
}


@pytest.mark.parametrize("seed", range(300))
def test_two_sides_that_are_joined_agree_on_how_it_ended(seed):
    """A model: any order of closes, drains, aborts and frames, and both sides end alike."""
    rng = random.Random(f"ending/{seed}")
    cores = (Ending(), Ending())
    wires: tuple[list, list] = ([], [])  # to each side
    ends: list[list[End]] = [[], []]
    closed_inbound = [False, False]

    def step(side, event):
        for effect in cores[side].step(event):
            if isinstance(effect, End):
                ends[side].append(effect)
            elif isinstance(effect, Seize):
                wires[1 - side].append(HeardAborted(10 + side))
            elif isinstance(effect, CloseInbound):
                closed_inbound[side] = True
            else:
                wires[1 - side].append(WIRE[type(effect)](effect))

    for _ in range(200):
        side = rng.randrange(2)
        choice = rng.random()
        if choice < 0.6 and wires[side]:
            step(side, wires[side].pop(0))
        elif choice < 0.75:
            step(side, Finished())
        elif choice < 0.9:
            if closed_inbound[side]:
                step(side, Finished())  # it has learned of the close
                step(side, Drained())
        elif choice < 0.9 + 0.1 * (seed % 3 == 0):
            step(side, Cut(10 + side, f"by {side}"))
    for _ in range(50):  # all frames arrive, and both take everything
        for side in (0, 1):
            step(side, Finished())
            while wires[side]:
                step(side, wires[side].pop(0))
            step(side, Drained())
    assert len(ends[0]) == len(ends[1]) == 1
    (mine,), (theirs,) = ends
    assert bool(mine.why) == bool(theirs.why)
    if mine.why:
        assert (mine.taken, theirs.taken) == (11, 10)
    assert all(isinstance(effect, ending.End) for side in ends for effect in side)
