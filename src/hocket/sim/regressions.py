"""Runs that once failed, with the options they had. A seed alone would not do: what a seed decides
changes whenever a new option is drawn."""

from __future__ import annotations

from hocket.sim.swarm import Options

REGRESSIONS: dict[str, tuple[int, Options]] = {}
