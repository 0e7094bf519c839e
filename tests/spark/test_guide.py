"""Every ```python block of the Spark guide, in the session and at the broker of this folder.

The other documents are run by the conftest.py at the top; this one is left out there, so that only
one suite starts a JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sybil import Sybil
from sybil.document import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.support.processes.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "spark.md"
BLOCKS = len(re.findall(r"^```python$", GUIDE.read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def guide(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Document]:
    """With the address and the directory that the guide names replaced by the tests' own."""
    scratch = tmp_path_factory.mktemp("guide")
    text = GUIDE.read_text()
    assert text.count('"hocket://127.0.0.1:4150"') == 1
    with ServerProcess(scratch / "data") as broker:  # of its own, for the names of its topics
        text = text.replace("hocket://127.0.0.1:4150", broker.address)
        copy = scratch / "spark.md"  # line for line the guide, so that errors name its lines
        copy.write_text(text.replace("/tmp/shop", str(scratch)))
        runner = Sybil(parsers=[PythonCodeBlockParser()], pattern="*.md", path=str(scratch))
        yield runner.parse(copy)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_guides_snippets_run_in_turn(guide: Document, block: int) -> None:
    examples = list(guide.examples())
    assert len(examples) == BLOCKS
    examples[block].evaluate()


def test_there_are_snippets() -> None:
    assert BLOCKS >= 5
