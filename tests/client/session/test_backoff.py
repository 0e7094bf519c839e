from __future__ import annotations

from random import Random

from hocket.client_core.session.backoff import FIRST_US, MOST_US, Backoff


def test_back_off_doubles_up_to_a_limit_and_is_never_exact():
    backoff = Backoff(Random(1))
    delays = [backoff.next_us() for _ in range(12)]
    for number, delay in enumerate(delays):
        most = min(FIRST_US * 2**number, MOST_US)
        assert most / 2 <= delay <= most
    assert delays[-1] >= MOST_US / 2
    assert len(set(delays)) == len(delays)
    backoff.reset()
    assert backoff.next_us() <= FIRST_US
