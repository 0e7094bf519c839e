"""Connections leave enough open files for the log."""

from __future__ import annotations

import resource

import pytest

from hocket.cli.open_files import connections_that_fit


@pytest.mark.parametrize(
    ("limits", "doors", "expected"),
    [
        ((1024, 1024), 1, 768),
        ((1024, 20_000), 1, 10_000),
        ((1024, 20_000), 2, 9_872),
        ((256, 256), 1, 128),
        ((1024, resource.RLIM_INFINITY), 1, 10_000),
    ],
)
def test_so_many_connections_fit(monkeypatch, limits, doors, expected):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    assert connections_that_fit(10_000, doors) == expected
    assert asked == ([] if limits[0] == limits[1] else [(limits[1], limits[1])])
