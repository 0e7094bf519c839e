"""What can be set for following group 0. Time is counted in ticks: a clock may be set, a count may
not. A tick lasts 100 ms (`node.settings.TICK_US`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Group0Settings:
    tail_entries_max: int = 10_000  # that the root keeps in memory for those who follow
    tail_bytes_max: int = 16 << 20  # the same, of their bodies
    run_entries_max: int = 500  # of one message
    run_bytes_max: int = 256 << 10  # of one message; a single entry may be larger
    runs_in_flight_max: int = 4  # messages to one learner that are not acknowledged
    piece_bytes: int = 256 << 10  # of a snapshot, in one message
    heartbeat_ticks: int = 10  # after so long without a message the root says that it is there
    resend_ticks: int = 5  # after so long without an acknowledgement it sends again
    silent_ticks: int = 40  # after so long a side that has said nothing counts as away
    retry_ticks_min: int = 5  # a learner that is not answered asks again after this, then doubles
    retry_ticks_max: int = 10  # when the root is back, nobody should have to wait much longer
    refused_ticks: int = 50  # a learner that was refused asks again after this
    answer_ticks_max: int = 50  # a request that was handed on is refused after this
    repeat_ticks: int = 10  # a request that was handed on is sent again after this
