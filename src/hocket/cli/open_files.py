"""How many files a process may have open, and so how many connections a broker can take.

A connection counts as an open file, like those of the log. If connections could use up all of them,
the next file of the log could not be opened, and the store would have to stop.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("hocket.node")

RESERVED = 256  # for the log's own files, and a little more


def connections_that_fit(wanted: int, doors: int = 1) -> int:
    """How many connections each of `doors` ports may take: `wanted`, or fewer if files are short.

    Raises the process's own limit as far as the system allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return wanted
    fit = max(1, (hard - min(RESERVED, hard // 2)) // doors)
    if fit < wanted:
        log.info(
            "%d files may be open, so %d connections are taken, not %d; raise the limit (ulimit "
            "-n, or LimitNOFILE=) for more", hard, fit, wanted,
        )  # fmt: skip
    return min(wanted, fit)
