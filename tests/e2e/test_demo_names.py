"""The scene of `make demo` in which three processes talk by name."""

from hocket.demo.names import MESSAGES, three_processes


def test_two_processes_answer_a_third_by_name():
    outcome = three_processes(lambda _part: None)
    assert outcome.connections == 2
    assert outcome.messages == 2 * MESSAGES
