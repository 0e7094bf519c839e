"""How many files a process may have open, and so how many connections a broker can take.

A connection counts as an open file, like those of the log. If connections could use up all of them,
the next file of the log could not be opened, and the store would have to stop.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("hocket.node")

RESERVED = 256  # for the log's own files, and a little more
OPEN_MAX = 10_240  # macOS names no hard limit, and grants so many without being configured


def connections_that_fit(wanted: int, doors: int = 1) -> int:
    """How many connections each of `doors` ports may take: `wanted`, or fewer if files are short.

    Raises the process's own limit as far as the system allows.
    """
    limit = _raised_limit()
    if limit == resource.RLIM_INFINITY:
        return wanted
    fit = max(1, (limit - min(RESERVED, limit // 2)) // doors)
    if fit < wanted:
        log.info(
            "%d files may be open, so %d connections are taken, not %d; raise the limit (ulimit "
            "-n, or LimitNOFILE=) for more", limit, fit, wanted,
        )  # fmt: skip
    return min(wanted, fit)


def _raised_limit() -> int:
    """Have as many files as the system allows; returns how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = [hard] if soft != hard else []
    if hard == resource.RLIM_INFINITY and soft < OPEN_MAX:
        wanted.append(OPEN_MAX)
    for limit in wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):
            continue
        return limit
    return soft
