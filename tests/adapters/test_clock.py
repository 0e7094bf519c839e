from __future__ import annotations

from hocket.adapters.clock import SystemClock


def test_the_systems_clock_is_in_microseconds():
    clock = SystemClock()
    assert 1.7e15 < clock.now_us() < 1e16
    first = clock.ticks_us()
    assert 0 <= clock.ticks_us() - first < 1e6
