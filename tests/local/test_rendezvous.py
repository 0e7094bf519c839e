"""A rendezvous that is settled by another thread at any moment of its partner's look."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from hocket.errors import Closed
from hocket.local import Broker, BrokerManager
from hocket.local.rendezvous import Rendezvous


@pytest.mark.parametrize("line", range(4))
def test_an_error_that_comes_during_a_look_is_raised_now_or_at_the_next(line):
    with Broker("b", BrokerManager()) as broker:
        rendezvous = Rendezvous("accept", broker, broker, 1)
        lines_left = [line]

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            if frame.f_code is not Rendezvous.outcome.__code__:
                return None
            if event == "line":
                if not lines_left[0]:
                    rendezvous.settle(Closed("gone"))
                lines_left[0] -= 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            found = rendezvous.outcome()
        except Closed:
            found = None
        finally:
            sys.settrace(before)
        assert found is None
        if lines_left[0] < 0:
            with pytest.raises(Closed):
                rendezvous.outcome()
