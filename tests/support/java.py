"""How the JVMs of the tests are started: with short lives in mind.

Most of what a start of Spark computes is the loading of some ten thousand classes. An archive of
them halves it; `make test` writes it once, see `tests.spark.programs.class_archive`.
"""

from __future__ import annotations

import sys
from pathlib import Path

CLASS_ARCHIVE = Path(sys.prefix) / "spark.jsa"

# A compiler that is quick to begin counts for more than fast code. An archive that does not fit
# what Java finds is left alone, which is no reason to say so.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds*=off"


def java_options() -> str:
    return f"{QUICK} -XX:SharedArchiveFile={CLASS_ARCHIVE}" if CLASS_ARCHIVE.exists() else QUICK
