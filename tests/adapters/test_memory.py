from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Takes and lets go of the memory of some batches; prints how many pages were touched anew.
PROGRAM = """
import resource, sys
from hocket.adapters.memory import keep_free_memory
if sys.argv[1] == "keeps":
    keep_free_memory()
def touched():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def batches():
    held = [bytearray(1 << 20) for number in range(60)]
batches()
before = touched()
for number in range(5):
    batches()
print(touched() - before)
"""


def pages_touched_anew(how: str) -> int:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=60
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_that_was_let_go_is_used_again_without_the_system() -> None:
    assert pages_touched_anew("keeps") < 1000 < pages_touched_anew("as it is")
