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

IN_HAND = "a broker in hand is an object of this process; of another one there is only the name"
ONE_PROCESS = "it is about what is known within one process"
# With the two sides in processes of their own, besides.
ACROSS_PROCESSES = {
    "test_the_other_broker_may_be_given_itself": IN_HAND,
    "test_a_broker_in_hand_needs_no_name_and_may_be_of_another_manager": IN_HAND,
    "test_a_closed_broker_in_hand_is_unknown_though_another_has_its_name": IN_HAND,
    "test_a_manager_takes_its_event_brokers_in_hand": IN_HAND,
    "test_a_broker_without_a_manager_is_in_the_registry_of_the_process": ONE_PROCESS,
    "test_where_ports_are_unique_a_second_broker_that_binds_gets_port_in_use": ONE_PROCESS,
}
STAGE = "each call would carry the whole buffer to the other process: it tests the test's stage"
MAIN_THREAD = "it is about a signal to the main thread of the process whose end reads"
TWO_BUFFERS = (
    "what is on its way lies in the buffers of both sides: a write takes what its own has room for"
)
LATER = "a connect to another process takes a round trip: what is seen of it there comes later"
OWN_BROKERS = "a manager finds and lists the brokers of its own process"
# Of channels, besides.
ACROSS_PROCESSES |= {
    "test_a_timeout_leaves_nothing_behind": LATER,
    "test_a_coroutine_that_times_out_leaves_nothing_behind": LATER,
    "test_timeout_zero_still_meets_who_is_there": LATER,
    "test_connecting_to_an_unknown_name_without_time_to_wait_fails_all_the_same": LATER,
    "test_a_taken_name_is_refused_and_its_owner_unharmed": OWN_BROKERS,
    "test_whoever_comes_first_waits_in_the_list_of_the_broker_that_is_to_accept": (
        "a broker that calls from elsewhere is known by its name, not as the broker itself"
    ),
    "test_writers_blocked_at_both_ends_are_woken_and_what_they_had_written_stays": (
        "a side that leaves says so behind its last bytes, and these wait for room over there"
    ),
    "test_the_default_buffer_is_one_mebibyte": TWO_BUFFERS,
    "test_the_default_buffer_holds_one_mebibyte_each_way": TWO_BUFFERS,
    "test_timeout_zero_still_takes_what_is_there": TWO_BUFFERS,
    "test_timeout_zero_moves_nothing_or_says_what_moved": TWO_BUFFERS,
    "test_the_last_byte_read_by_a_coroutine_wakes_a_blocked_thread": TWO_BUFFERS,
    "test_a_woken_task_leaves_no_hold_on_its_buffer": TWO_BUFFERS,
    "test_a_timeout_with_nothing_moved_says_so": TWO_BUFFERS,
    "test_a_thread_writes_and_a_coroutine_reads_every_byte": STAGE,
    "test_tens_of_megabytes_in_odd_pieces_are_exact": STAGE,
    "test_a_long_transfer_in_pieces_of_one_to_seven_bytes_is_exact": STAGE,
    "test_a_thousand_idle_channels_allocate_no_buffers": (
        "it counts the memory of this process, which has the connections of both ends"
    ),
    "test_a_signal_interrupts_a_blocked_read_and_the_end_stays_usable": MAIN_THREAD,
    "test_a_signal_whose_handler_returns_does_not_disturb_a_blocked_read": MAIN_THREAD,
}
# With neither side in the process of the test, besides.
SENDER_ELSEWHERE = {
    "test_the_undelivered_messages_are_the_very_same_objects": (
        "the sender is not here, and its objects are not either"
    ),
    "test_a_reader_left_behind_on_a_closed_loop_does_not_hurt_the_writer": (
        "the loop that is closed is not that of the reader: it is in the other process"
    ),
    "test_a_name_is_a_str": OWN_BROKERS,
    "test_a_name_is_not_empty": OWN_BROKERS,
}
