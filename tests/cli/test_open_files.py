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


@pytest.mark.parametrize(
    ("soft", "granted", "expected", "asked"),
    [
        (256, 10_240, 9_984, [resource.RLIM_INFINITY, 10_240]),
        (256, 0, 128, [resource.RLIM_INFINITY, 10_240]),
        (20_000, 0, 10_000, [resource.RLIM_INFINITY]),
    ],
)
def test_a_system_without_a_hard_limit_grants_less_than_that(
    monkeypatch, soft, granted, expected, asked
):
    """As macOS does, where the limit cannot be infinite though it is named so."""
    wanted = []

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        wanted.append(limits[0])
        if limits[0] != granted:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert connections_that_fit(10_000) == expected
    assert wanted == asked
