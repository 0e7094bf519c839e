"""A pytest fixture for those who test programs that use Hocket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from hocket.client.faces.blocking.client import Client


@pytest.fixture
def hocket_broker(tmp_path: Path) -> Iterator[Client]:
    """A client of a broker of its own, in this process, that is gone after the test."""
    # Imported here: only tests that use it pay for it.
    from hocket.client.faces.blocking.connecting import embedded

    with embedded(tmp_path / "hocket") as client:
        yield client
