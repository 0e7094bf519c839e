"""The notebook among the examples is executed, cell by cell, as Jupyter would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.processes.server import ServerProcess

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def test_every_cell_of_the_notebook_does_what_it_says(
    spark: SparkSession,
    broker: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOCKET_SERVER", broker.address)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    found: dict[str, Any] = {"__name__": "__main__"}
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}[{number}]", "exec"), found)
    assert found["before"] == {f"sensor-{each}": 600 for each in range(3)}
    assert found["after"] == {f"sensor-{each}": 700 for each in range(3)}
    assert found["lag"] == 0
    (axes,) = found["figure"].axes
    assert [line.get_label() for line in axes.lines] == ["sensor-0", "sensor-1", "sensor-2"]
    assert all(len(line.get_xdata()) == 10 for line in axes.lines)
    picture = tmp_path / "readings.png"
    found["figure"].savefig(picture)
    assert picture.stat().st_size > 5000
    found["plt"].close("all")
