"""The table of roles, and the diagram that is drawn from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.core.raft.roles import TABLE, Cause, Role, follows
from tools import raft_diagram

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "raft.md"


def test_the_page_shows_what_the_table_draws():
    """If it fails after a change on purpose: python tools/raft_diagram.py --write"""
    assert raft_diagram.drawn() in PAGE.read_text()


def test_the_tool_writes_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{raft_diagram.BEGIN}\nold\n{raft_diagram.END}\nbehind\n")
    raft_diagram.write(page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("behind\n")
    assert "old" not in text
    assert raft_diagram.drawn() in text


def test_every_role_and_every_cause_is_in_the_table():
    assert {role for role, _ in TABLE} == set(Role)
    assert set(TABLE.values()) == set(Role)
    assert {cause for _, cause in TABLE} == set(Cause)


def test_nobody_leads_but_by_votes():
    assert [key for key, role in TABLE.items() if role is Role.LEADER] == [
        (Role.CANDIDATE, Cause.MAJORITY)
    ]


def test_what_is_not_in_the_table_does_not_happen():
    with pytest.raises(KeyError):
        follows(Role.FOLLOWER, Cause.MAJORITY)
