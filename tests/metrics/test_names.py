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


def expressions() -> list[str]:
    dashboard = json.loads((ROOT / "deploy/grafana.json").read_text())
    drawn = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alarmed = re.findall(r"^ +expr: (.*)$", (ROOT / "deploy/alerts.yaml").read_text(), re.MULTILINE)
    assert drawn
    assert alarmed
    return [*drawn, *alarmed]


def strange_labels(expression: str) -> set[str]:
    """Those that none of the metrics in an expression has."""
    strange, known = set(), {"instance", "job", "le"}
    for name, matchers in re.findall(r"\b(hocket_\w+|up)\b(?:\{([^}]*)\})?", expression):
        metric = re.sub(r"_(bucket|sum|count)$", "", name)
        here = set(METRICS[metric].labels) if metric in METRICS else set()
        strange |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - here - {"instance", "job"}
        known |= here
    for labels in re.findall(r"by \(([^)]*)\)", expression):
        strange |= set(labels.split(", ")) - known
    return strange


def test_labels_that_are_used_are_those_that_a_metric_has():
    assert [(each, strange_labels(each)) for each in expressions() if strange_labels(each)] == []
    # And so that the test is one:
    assert strange_labels('sum by (hook) (hocket_plugin_on{plug="x", instance=~"a"})') == {
        "hook", "plug",
    }  # fmt: skip


def test_what_an_alert_says_has_the_labels_of_its_expression():
    text = (ROOT / "deploy/alerts.yaml").read_text()
    for rule in text.split("- alert:")[1:]:
        names = {re.sub(r"_(bucket|sum|count)$", "", each) for each in NAME.findall(rule)}
        known = {label for name in names for label in METRICS[name].labels} | {"instance"}
        grouped = re.findall(r"by \(([^)]*)\)", rule)
        if grouped:  # others are lost
            known &= {label for each in grouped for label in each.split(", ")}
        assert set(re.findall(r"\$labels\.(\w+)", rule)) <= known, rule


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
