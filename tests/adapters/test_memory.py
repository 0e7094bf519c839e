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


# Prints how many objects a full collection looks at, of those that it finds when all is loaded;
# and how many pieces of garbage from before are left.
SETS_ASIDE = """
import gc, weakref
from hocket.adapters.memory import set_aside_what_stays
class Piece:
    pass
gc.disable()
piece = Piece()
piece.itself = piece
garbage = weakref.ref(piece)
del piece
loaded = len(gc.get_objects())
set_aside_what_stays()
print(loaded, len(gc.get_objects()), int(garbage() is not None))
"""


def test_what_stays_is_looked_at_no_more_and_garbage_does_not_stay_with_it() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SETS_ASIDE], capture_output=True, text=True, check=True, timeout=60
    )
    loaded, looked_at, garbage = map(int, run.stdout.split())
    assert looked_at * 10 < loaded
    assert not garbage
