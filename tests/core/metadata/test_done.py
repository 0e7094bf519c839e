"""Which requests of other nodes have been carried out, by plain calls."""

from __future__ import annotations

import json

from hocket.core.metadata.done import KEPT, Done
from hocket.core.origin import Asked


def test_what_is_done_is_known_by_node_and_number():
    done = Done()
    assert not done
    assert not done.is_too_old(Asked("a", 1))
    done.record(Asked("a", 5), 10)
    assert done
    assert done.index_of(Asked("a", 5)) == 10
    assert done.index_of(Asked("a", 4)) is None
    assert done.index_of(Asked("b", 5)) is None


def test_the_newest_numbers_are_kept_and_older_ones_are_said_to_be_too_old():
    done = Done()
    for number in range(1, KEPT + 3):
        done.record(Asked("a", number), 100 + number)
    assert done.index_of(Asked("a", 2)) is None
    assert done.index_of(Asked("a", 3)) == 103
    assert done.is_too_old(Asked("a", 2))
    assert not done.is_too_old(Asked("a", 3))
    assert not done.is_too_old(Asked("b", 1))
    done.record(Asked("a", 1 << 40), 500)  # of a later life: nobody waits for the others
    assert done.index_of(Asked("a", KEPT)) is None


def test_it_comes_back_from_a_snapshot():
    done, again = Done(), Done()
    done.record(Asked("a", 5), 10)
    done.record(Asked("b", 6), 11)
    again.restore(json.loads(json.dumps(done.snapshot())))
    assert again.snapshot() == done.snapshot()
    assert again.index_of(Asked("b", 6)) == 11
