import pytest

from hocket.local import Channel
from tests.local.test_channel_limits import *  # noqa: F403


@pytest.fixture(autouse=True)
def across_processes(sides, monkeypatch):
    monkeypatch.setattr(Channel, "pair", sides.pair)
