"""Runs every ```python block of README.md and docs/ as a test.

The blocks of one document share one namespace, in the order they stand, so a guide can build up its
example step by step. A document that leaves a thread, an open file or a broker behind fails.
"""

from __future__ import annotations

import os
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from hocket import environment
from tests.support.leaks import LeakCheck

for _name in environment.NAMES:  # whoever runs the tests may have a broker of their own
    os.environ.pop(_name, None)

_CHECK = "__leak_check__"  # a name no document uses


def _begin(namespace: dict[str, Any]) -> None:
    namespace[_CHECK] = LeakCheck()


def _end(namespace: dict[str, Any]) -> None:
    check = namespace.pop(_CHECK)
    namespace.clear()
    check.verify()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"],
    excludes=[
        "docs/guide/spark.md",  # tests/spark/test_guide.py runs it, where Spark is at hand
        "docs/guide/first_hour.md",  # tests/cli/test_pages.py runs it, with its commands
    ],
    setup=_begin,
    teardown=_end,
).pytest()
