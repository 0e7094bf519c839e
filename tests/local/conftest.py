"""What holds for every test of channels and queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hocket.local import Channel


@pytest.fixture(autouse=True)
def channels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Channel]]:
    """Every channel end that the test makes; those that it leaves connected are disconnected.

    An end that is dropped instead gives a warning, and warnings are errors. Most tests are about
    something else; one that is about dropping clears this list.
    """
    made: list[Channel] = []
    make = Channel.__init__

    def keep(channel: Channel, *streams: Any) -> None:
        make(channel, *streams)
        made.append(channel)

    monkeypatch.setattr(Channel, "__init__", keep)
    yield made
    for channel in made:
        channel.disconnect()
