from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rpc.world import World, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path / "data") as running:
        yield running
