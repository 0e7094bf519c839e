"""One table of names; documentation, dashboard and rules have the same ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.metrics.exposition import exposed
from hocket.metrics.meters import Histogram
from hocket.metrics.names import METRICS

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\bhocket_[a-z_]+\b")


def named(text: str) -> set[str]:
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in NAME.findall(text)}


def test_the_guide_explains_every_metric():
    page = (ROOT / "docs/guide/operations.md").read_text()
    rows = dict(re.findall(r"^\| `(hocket_\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert rows == {name: metric.kind for name, metric in METRICS.items()}


@pytest.mark.parametrize("file", ["alerts.yaml", "grafana.json"])
def test_what_is_drawn_or_alarmed_about_is_there(file: str):
    found = named((ROOT / "deploy" / file).read_text())
    assert found
    assert found <= METRICS.keys()


def test_the_dashboard_draws_every_metric():
    dashboard = json.loads((ROOT / "deploy/grafana.json").read_text())
    drawn = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    assert named(drawn) == METRICS.keys()


def test_labels_that_are_used_are_those_that_a_metric_has():
    text = (ROOT / "deploy/alerts.yaml").read_text() + (ROOT / "deploy/grafana.json").read_text()
    known = {label for metric in METRICS.values() for label in metric.labels}
    for labels in re.findall(r"by \(([^)]*)\)", text):
        assert set(labels.split(", ")) <= known | {"le", "instance"}


def test_the_text_says_what_it_was_given():
    samples = {name: [] for name in METRICS}
    samples["hocket_leaders"] = [((), 3)]
    samples["hocket_scrape_seconds"] = [((), 0.25)]
    samples["hocket_index_lag_records"] = [(("t", "0", 'a "b" \\ c\nd'), 1e15)]
    histograms = {name: Histogram() for name, each in METRICS.items() if each.kind == "histogram"}
    histograms["hocket_publish_seconds"].observe(0.003)
    text = exposed(samples, histograms).decode()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert families["hocket_leaders"].samples[0].value == 3
    assert families["hocket_scrape_seconds"].samples[0].value == 0.25
    (lag,) = families["hocket_index_lag_records"].samples
    assert (lag.value, lag.labels["index"]) == (1e15, 'a "b" \\ c\nd')
    counts = {each.labels.get("le", each.name): each.value
              for each in families["hocket_publish_seconds"].samples}  # fmt: skip
    assert (counts["0.0025"], counts["0.005"], counts["+Inf"]) == (0, 1, 1)
    assert counts["hocket_publish_seconds_sum"] == pytest.approx(0.003)
