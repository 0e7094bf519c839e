"""Tests of the contracts that do not hold across processes, and why.

Everything else of the suites does. A name stands for all parameters of its test.
"""

ALIASING = "ownership by aliasing ends at the process: the receiver gets a copy of the bytes"
INSIDE = "it reaches into both ends of one lane, and two processes share none"
EXCEPTIONS = {
    "test_a_message_of_200_mb_passes_through_a_full_event_queue_as_it_is": ALIASING,
    "test_full_event_queues_hand_over_the_very_same_object": ALIASING,
    "test_an_object_may_be_sent_twice_and_back": ALIASING,
    "test_a_large_message_whose_memory_was_released_harms_nobody": ALIASING,
    "test_a_small_message_whose_memory_was_released_harms_nobody": ALIASING,
    "test_a_coroutine_looks_once_more_before_its_time_is_up": INSIDE,
    "test_brokers_of_different_managers_do_not_see_each_other": (
        "managers of one cluster are to see each other: that is what they are for"
    ),
    "test_waiting_for_room_on_the_pump_that_has_to_make_it_is_refused": (
        "the pump that has to make room is in the other process, where nobody can wait for it"
    ),
    "test_both_ends_on_a_pump_that_stops_hear_of_the_end": "it is about one pump at both ends",
}
