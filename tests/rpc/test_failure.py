"""What a client is told of an error, and what the log says when there is no client any more."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from hocket.errors import LeaseLost
from hocket.rpc.endpoint import _report
from hocket.rpc.failure import failure


@pytest.mark.parametrize("error", [LeaseLost("too late"), ZeroDivisionError("a bug")])
def test_a_failure_that_nobody_hears_of_is_one_line_of_the_log_and_a_bug_is_not_hidden(
    error, caplog
):
    caplog.set_level(logging.DEBUG, logger="hocket.rpc")

    async def fails() -> None:
        raise failure(error) if isinstance(error, LeaseLost) else error

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(_report)
        task = asyncio.ensure_future(fails())
        await asyncio.wait([task])
        del task
        gc.collect()

    asyncio.run(main())
    (record,) = caplog.records
    if isinstance(error, LeaseLost):
        assert record.levelno == logging.DEBUG
        assert record.exc_info is None
        assert record.getMessage() == "a client that has gone was not told: leaseLost: too late"
    else:
        assert record.levelno == logging.WARNING
        assert record.exc_info[1] is error
