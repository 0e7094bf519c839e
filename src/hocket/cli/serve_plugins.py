"""The plug-ins that `hocket serve` runs: those of its options and configuration, and our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hocket.addresses import Address
    from hocket.plugins.host import Host


def plugins_of(
    names: tuple[str, ...],
    apart: tuple[str, ...],
    tables: dict[str, Any],
    metrics: Address | None,
    metrics_us: int,
    *,
    tracing: bool,
) -> Host | None:
    """None: there are none, and nothing of them is loaded."""
    if not names and not apart and not tables and metrics is None and not tracing:
        return None
    from hocket.plugins.enabling import enable
    from hocket.plugins.found import make

    host = enable(names, tables, apart)
    if metrics is not None or host.wants("on_metrics"):
        from hocket.metrics.plugin import Metrics

        chosen: dict[str, Any] = {}
        if metrics is not None:
            chosen |= {"host": metrics.host, "port": metrics.port}
        if host.wants("on_metrics"):
            chosen["seconds"] = metrics_us / 1e6
        host.add(make("metrics", Metrics, chosen))
    if tracing:
        try:
            from hocket.node_tracing import Tracing
        except ImportError as error:
            raise click.ClickException(str(error)) from error
        host.add(make("tracing", Tracing, {}))
    return host
