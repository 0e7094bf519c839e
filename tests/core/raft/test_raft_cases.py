"""The replay of reference cases, on cases of our own; see tests/support/core/raft_cases.py."""

from __future__ import annotations

import json

import pytest

from hocket.core.raft import following, quorum
from tests.support.core import raft_cases
from tests.support.core.raft_cases import Disagreement, Replay, disagreement, main, orders

FOLLOWER = {"term": 0, "vote": 0, "role": "follower", "lead": 0, "commit": 0, "log": ""}


def start(nodes, voters="", learners="", **options):
    conf = (voters or nodes) + (f" l{learners}" if learners else "")
    state = {nodes.translate({ord(each): None for each in learners}): {**FOLLOWER, "conf": conf}}
    if learners:
        state[learners] = {**FOLLOWER, "role": "learner", "conf": conf}
    given = {"do": "start", "nodes": nodes, "voters": voters or nodes, "learners": learners}
    return {**given, **options, "state": state}


def elected(leader, others, log="1", learners=""):
    """The first step in which somebody leads."""
    state = {str(leader): {"term": 1, "vote": leader, "role": "leader", "lead": leader,
                           "commit": 1, "log": log},
             others: {"term": 1, "vote": leader, "lead": leader, "commit": 1, "log": log},
             }  # fmt: skip
    if learners:
        state[learners] = {"term": 1, "lead": leader, "commit": 1, "log": log}
    return {"do": "campaign", "node": leader, "committed": 1, "state": state}


def case(name, *steps):
    return {"name": name, "about": "", "tags": [], "steps": list(steps)}


def step(do, state=None, **options):
    return {"do": do, "state": state or {}, **options}


CASES = [
    case(
        "a leader replicates, and a cut follower catches up",
        start("123"), elected(1, "23"),
        step("connect", groups=["12", "3"]),
        step("propose", {"12": {"commit": 3, "log": "+1x2"}}, node=1, count=2, committed=3),
        step("connect", groups=["123"]),
        step("settle", {"3": {"commit": 3, "log": "+1x2"}}),
    ),
    case(
        "what is not flushed does not count, and is lost in a crash",
        start("123"), elected(1, "23"),
        step("connect", groups=["12", "3"]),
        step("lag", node=2),
        step("propose", {"1": {"log": "+1"}, "2": {"tail": "1"}}, node=1, count=1),
        step("crash", {"2": {"role": "down"}}, node=2),
        step("restart", {"2": {"role": "follower", "lead": 0, "commit": None, "tail": ""}}, node=2),
        step("settle", {"1": {"commit": 2}, "2": {"lead": 1, "commit": 2, "log": "+1"}},
             committed=2),
    ),
    case(
        "flushed at last",
        start("123"), elected(1, "23"),
        step("connect", groups=["12", "3"]),
        step("lag", node=2),
        step("propose", {"1": {"log": "+1"}, "2": {"tail": "1"}}, node=1, count=1),
        step("flush", {"1": {"commit": 2}, "2": {"commit": 2, "log": "+1", "tail": ""}},
             node=2, committed=2),
    ),
    case(
        "a joint change is left by itself, and one at a time",
        start("12345", "123"), elected(1, "23"),
        step("change", {"1": {"commit": 3, "log": "+1x2", "conf": "145"},
                        "45": {"term": 1, "lead": 1, "commit": 3, "log": "1x3", "conf": "145"},
                        "23": {"commit": None, "log": None, "conf": None}},
             node=1, voters="145", mode="auto", committed=3),
        step("connect", groups=["1", "2345"]),
        step("change", {"1": {"log": "+1"}}, node=1, voters="14", mode="simple"),
        step("change", node=1, voters="15", mode="simple", refused=True),
        step("leave", node=1, refused=True),
    ),
    case(
        "reads, also of a learner, and none without a majority",
        start("1234", "123", "4"), elected(1, "23", learners="4"),
        step("read", node=4, token="x", floor=1, reads=[[4, "x", 1]]),
        step("connect", groups=["1", "234"]),
        step("read", node=1, token="y", floor=1),
        step("connect", groups=["1234"]),
        step("settle", reads=[[1, "y", 1]]),
    ),
    case(
        "a leader without majority steps down, and who hears nobody disturbs nobody",
        start("123", pre_vote=True, check_quorum=True), elected(1, "23"),
        step("campaign", node=3),
        step("connect", groups=["12", "3"]),
        step("campaign", {"3": {"role": "pre_candidate", "lead": 0}}, node=3),
        step("connect", groups=["1", "2", "3"]),
        step("elapse", {"1": {"role": "follower", "lead": 0}}),
    ),
    case(
        "a transfer, and one that is given up",
        start("123"), elected(1, "23"),
        step("transfer", {"13": {"term": 2, "vote": 2, "role": "follower", "lead": 2, "commit": 2,
                                 "log": "+2"},
                          "2": {"term": 2, "vote": 2, "role": "leader", "lead": 2, "commit": 2,
                                "log": "+2"}},
             node=1, to=2, committed=2),
        step("connect", groups=["12", "3"]),
        step("transfer", node=2, to=3),
        step("propose", node=2, count=1),
        step("elapse"),
        step("propose", {"12": {"commit": 3, "log": "+2"}}, node=2, count=1, committed=3),
    ),
    case(
        "a snapshot, once lost, and messages that were held",
        start("123"), elected(1, "23"),
        step("connect", groups=["12", "3"]),
        step("propose", {"12": {"commit": 3, "log": "+1x2"}}, node=1, count=2, committed=3),
        step("compact", node=1),
        step("connect", groups=["123"], cut=["1>3"]),
        step("settle"),
        step("connect", groups=["123"]),
        step("hold", links=["1>3"]),
        step("propose", {"12": {"commit": 4, "log": "+1"}}, node=1, count=1, committed=4),
        step("release", {"3": {"commit": 4, "log": "+1x3"}}, links=["1>3"]),
    ),
    case(
        "what is proposed quietly comes later",
        start("123"), elected(1, "23"),
        step("propose", {"1": {"log": "+1"}}, node=1, count=1, quiet=True),
        step("settle", {"1": {"commit": 2}, "23": {"commit": 2, "log": "+1"}}, committed=2),
    ),
]  # fmt: skip


@pytest.mark.parametrize("each", CASES, ids=lambda each: each["name"])
def test_our_own_cases_agree(each):
    assert disagreement(each) == ""


def broken(changed):
    """The first case, with another state in its fourth step."""
    steps = [dict(each) for each in CASES[0]["steps"]]
    steps[3] = {**steps[3], **changed}
    return case("broken", *steps)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"state": {"12": {"commit": 2, "log": "+1x2"}}}, "commit of 1 is 3, not 2"),
        ({"state": {"12": {"commit": 3, "log": "+1"}}}, "log of 1"),
        ({"state": {"12": {"commit": 3, "log": "+1x2", "term": 7}}}, "term of 1"),
        ({"state": {"12": {"commit": 3, "log": "+1x2", "lead": 2}}}, "lead of 1"),
        ({"state": {"12": {"commit": 3, "log": "+1x2", "role": "leader"}}}, "role of 2"),
        ({"state": {"12": {"commit": 3, "log": "+1x2", "conf": "12"}}}, "conf of 1"),
        ({"committed": 2}, "too much is committed"),
        ({"refused": True}, "refused: False"),
    ],
)
def test_a_case_that_says_something_else_does_not_agree(changed, why):
    assert why in disagreement(broken(changed))


def test_reads_are_compared():
    steps = CASES[4]["steps"]
    unanswered = {**steps[2], "reads": []}
    assert "answers" in disagreement(case("x", *steps[:2], unanswered))
    stale = {**steps[2], "floor": 2}
    assert "below 2" in disagreement(case("x", *steps[:2], stale))
    # A late answer is matched with a question, and there has to be one.
    replay = Replay(orders()[0])
    with pytest.raises(AssertionError, match="was not asked"):
        replay._match("1", "x", 5)


def test_where_the_configuration_is_open_so_is_who_is_a_learner():
    steps = CASES[4]["steps"]
    as_follower = {"4": {"role": "follower", "conf": None}}
    assert disagreement(case("x", *steps[:2], step("settle", as_follower))) == ""
    as_follower = {"4": {"role": "follower"}}
    assert "role of 4" in disagreement(case("x", *steps[:2], step("settle", as_follower)))


@pytest.mark.parametrize(
    ("room", "name", "value", "found_by"),
    [
        (quorum, "reached", max, 1),
        (following, "commit", lambda group, told: [], 0),
    ],
)
def test_a_core_that_is_wrong_does_not_agree(monkeypatch, room, name, value, found_by):
    monkeypatch.setattr(room, name, value)
    assert disagreement(CASES[found_by]) != ""


def written(folder, cases):
    (folder / "some.jsonl").write_text("".join(json.dumps(each) + "\n" for each in cases) + "\n")
    return str(folder)


def test_the_last_line_counts_and_all_have_to_agree(tmp_path, capsys):
    assert main([written(tmp_path, CASES[:3])]) == 0
    assert capsys.readouterr().out == "cases: 3, agree: 3\n"
    assert main([written(tmp_path, [CASES[0], broken({"committed": 2})])]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "cases: 2, agree: 1"
    assert main([str(tmp_path), CASES[0]["name"]]) == 0
    assert capsys.readouterr().out == "cases: 1, agree: 1\n"


def test_a_directory_that_is_empty_or_missing_fails(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().out == "cases: 0, agree: 0\n" * 2
    assert main([]) == 2
    assert "CASES=DIR" in capsys.readouterr().out


def test_nodes_that_do_not_settle_are_noticed(monkeypatch):
    monkeypatch.setattr(raft_cases, "ROUNDS_MAX", 1)
    with pytest.raises(Disagreement, match="do not settle"):
        Replay(orders()[0]).play(CASES[0])
