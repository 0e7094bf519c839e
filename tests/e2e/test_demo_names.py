"""The scenes of `make demo` in which three processes talk by name."""

from contextlib import nullcontext

import pytest

from hocket.demo import names
from hocket.demo.__main__ import SCENES
from hocket.demo.names import MESSAGES, chat, three_processes


def test_two_processes_answer_a_third_by_name():
    outcome = three_processes(lambda _part: None)
    assert outcome.connections == 2
    assert outcome.messages == 2 * MESSAGES


def test_the_example_of_a_chat_is_a_scene_of_the_demo():
    assert "a chat of three" in [scene for _, scene, _ in SCENES]
    outcome = chat()
    assert outcome.connections == 3
    assert outcome.messages == 6


def test_a_chat_in_which_not_everybody_is_heard_fails_the_demo(tmp_path, monkeypatch):
    deaf = tmp_path / "chat.py"
    deaf.write_text("import sys; print(sys.argv[1], 'heard', sys.argv[2] + ': hello')")
    monkeypatch.setattr(names, "CHAT", deaf)
    monkeypatch.setattr(names, "serving", lambda *_given: nullcontext(("", None)))
    with pytest.raises(SystemExit, match="everybody hears everybody"):
        chat()
