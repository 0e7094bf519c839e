"""A pytest fixture for the tests of programs that use Hocket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import hocket  # loads the client when the fixture is used, so other tests do not pay for it

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def hocket_broker(tmp_path: Path) -> Iterator[hocket.Client]:
    """A client of a new broker in this process; both are gone after the test."""
    with hocket.embedded(tmp_path / "hocket") as client:
        yield client
