import pytest

from hocket.local import Channel
from tests.local.test_channel import *  # noqa: F403


@pytest.fixture(autouse=True)
def across_processes(sides, monkeypatch):
    monkeypatch.setattr(Channel, "pair", sides.pair)
    # Where a buffer holds one byte, each byte takes a round trip: 0.5 ms on a busy machine.
    monkeypatch.setattr("tests.local.test_channel.TRANSFER_BYTES", 10_000)
