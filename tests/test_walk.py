"""docs/internals/walk.md names the functions that one message really calls, in its order."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "walk.md"


def told() -> list[tuple[str, str]]:
    """File and function of each step on the page."""
    return re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| `([\w.]+)` \|", PAGE.read_text(), re.MULTILINE)


@cache
def recorded() -> list[tuple[str, str]]:
    command = [sys.executable, str(ROOT / "tools" / "walk.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return re.findall(r"([\w/]+\.py) +(\S+)$", run.stdout, re.MULTILINE)


def test_every_step_of_the_page_is_taken():
    steps = told()
    assert len(steps) > 30
    assert [step for step in steps if step not in recorded()] == []


def test_a_step_that_nobody_takes_would_be_noticed():
    assert ("node/node.py", "Node.say_goodbye") not in recorded()


def test_the_way_in_is_told_in_its_order():
    """From the port to the log one thread does it all, so that the order is always the same."""
    steps = told()
    first = steps.index(("node/requests/serving.py", "Serving.received"))
    last = steps.index(("adapters/disk.py", "DirectoryFile.write"))
    taken = list(dict.fromkeys(recorded()))
    places = [taken.index(step) for step in steps[first : last + 1]]
    assert places == sorted(places)
