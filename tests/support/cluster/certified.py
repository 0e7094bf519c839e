"""Nodes with TLS: each has a certificate of its own, made by the command that people use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.support.cli import Hocket
from tests.support.cluster.processes import Cluster, Process


def certified(cluster: Cluster, names: Iterable[str], *hosts: str) -> None:
    made = Hocket("")("certs", "init", "--directory", str(_directory(cluster)))
    assert made.code == 0, made
    for name in names:
        certify(cluster, cluster.add(name), *hosts)


def certify(cluster: Cluster, node: Process, *hosts: str) -> None:
    """For the store that this node's data directory is, or becomes."""
    directory = _directory(cluster)
    args = ["--data", str(node.data), *(arg for host in hosts for arg in ("--host", host))]
    made = Hocket("")("certs", "node", "--directory", str(directory), *args)
    assert made.code == 0, made
    certificate = Path(made.stdout.decode().splitlines()[0].split(": ")[1])
    node.tls_ca = directory / "ca.pem"
    node.options = (
        "--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key")),
        "--tls-ca", str(node.tls_ca),
    )  # fmt: skip


def _directory(cluster: Cluster) -> Path:
    return cluster.directory / "certs"
