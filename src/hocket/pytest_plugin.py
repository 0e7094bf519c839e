"""Fixtures of pytest for the tests of programs that use Hocket.

    hocket_broker   a blocking client of a new broker in this process
    hocket_aio      the same for asyncio: `async with hocket_aio as client`
    hocket_url      the URL of that broker, served at a free port of this machine

They are of one broker, which is new for each test and gone after it. No port is fixed, and the data
are in the test's own directory, so tests may run side by side (pytest-xdist).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from hocket.client.faces.blocking.client import Client
    from hocket.pytest_broker import AioBroker, FixtureBroker


@pytest.fixture
def _hocket_running(tmp_path: Path) -> Iterator[FixtureBroker]:
    from hocket.pytest_broker import FixtureBroker  # late: other tests do not pay for it

    broker = FixtureBroker(tmp_path / "hocket")
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def hocket_broker(_hocket_running: FixtureBroker) -> Iterator[Client]:
    """A client of a new broker in this process; both are gone after the test."""
    with _hocket_running.client() as client:
        yield client


@pytest.fixture
def hocket_aio(_hocket_running: FixtureBroker) -> AioBroker:
    """`async with hocket_aio as client`: an asyncio client of the test's broker."""
    return _hocket_running.aio()


@pytest.fixture
def hocket_url(_hocket_running: FixtureBroker) -> str:
    """The URL of the test's broker, at a port that was free; for what is told where to connect."""
    return _hocket_running.url()
