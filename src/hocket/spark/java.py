"""Is there a Java that Spark can run on?

Without Java Spark fails late, and its error does not help. So what starts Spark here asks first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from hocket.errors import HocketError

OLDEST = 17  # what Spark 4 needs
ANSWER_SECONDS = 30  # a busy machine may take seconds to start a Java
REMEDY = (
    f"install Java {OLDEST} or newer (Debian: apt-get install openjdk-17-jre-headless), "
    "or set JAVA_HOME to where it is"
)


class NoJava(HocketError):
    """Spark needs Java 17 or newer, and there is none."""


def problem() -> str | None:
    """None if Spark will find Java 17 or newer; else one line: what is wrong and how to mend it."""
    fault = _fault()
    return fault and f"{fault}: {REMEDY}"


def require() -> None:
    """Raise NoJava with the line that `problem` gives, if it gives one."""
    line = problem()
    if line is not None:
        raise NoJava(line)


def _fault() -> str | None:
    home = os.environ.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if found is None:
        return "Spark needs Java, and there is no `java` on the PATH"
    if not os.access(found, os.X_OK) or os.path.isdir(found):  # only JAVA_HOME can lead here
        return f"Spark needs Java, and JAVA_HOME is set but {found} cannot be run"
    try:
        answer = subprocess.run(
            [found, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Spark needs Java, and {found} does not run ({type(error).__name__})"
    version = _major(answer.stderr + answer.stdout)
    if answer.returncode or version is None:
        return f"Spark needs Java, and `{found} -version` failed"
    if version < OLDEST:
        return f"Spark needs Java {OLDEST}, and {found} is Java {version}"
    return None


def _major(words: str) -> int | None:
    """17 of `openjdk version "17.0.15"`, and 8 of `java version "1.8.0_392"`."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', words)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first
