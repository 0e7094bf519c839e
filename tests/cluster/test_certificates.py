"""One real node with TLS, and callers who are no nodes of its cluster: each is refused, and why is
said on both sides and stands in the audit log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hocket.adapters.disk import DirectoryDisk
from hocket.adapters.node_certificate import mark_of
from hocket.adapters.tls import dialling_context
from hocket.cli.authority import CLIENT, NODE, Authority, Pair
from hocket.cli.cluster_options import certificate_fault
from hocket.core.ring.circle import candidates
from hocket.log.directory import store_id_of
from hocket.node.links.asking import Refused, ask_one
from hocket.node_frames import NodeHello
from tests.support.certificates import LONG_AGO
from tests.support.cluster.processes import Process, wait_for

STORE = "5" * 32  # of the one who calls


def test_who_calls_with_a_wrong_certificate_is_refused_by_a_real_node(tmp_path: Path):
    own, other = Authority.create("the cluster's"), Authority.create("another")
    authority = Pair.named(tmp_path, "ca")
    own.save(authority)
    node = Process(tmp_path, "node")
    node.data.mkdir()
    store = store_id_of(DirectoryDisk(node.data), str(node.data))
    files = Pair.named(tmp_path, "node")
    own.issue_node(files, store, ["127.0.0.1"])
    node.options = (
        "--tls-cert", str(files.certificate), "--tls-key", str(files.key),
        "--tls-ca", str(authority.certificate),
    )  # fmt: skip
    greeting = NodeHello(
        cluster=store, node=STORE, name="caller", address="127.0.0.1:1", boot=1,
        position=candidates(STORE.encode())[0],
    )  # fmt: skip

    def call(issue: Callable[[Pair], None] | None, **hello: object) -> str:
        """With a certificate made for it, or in plain: the node's store id, or the refusal."""
        tls = None
        if issue is not None:
            files = Pair.named(tmp_path, f"caller-{len(list(tmp_path.iterdir()))}")
            issue(files)
            tls = dialling_context(files.certificate, files.key, authority.certificate)
        try:
            said = replace(greeting, **hello)  # type: ignore[arg-type]
            return ask_one(node.address, said, tls, certificate_fault).node
        except Refused as error:
            return str(error)

    def right(files: Pair) -> None:
        own.issue_node(files, STORE, ())

    refused: list[tuple[Callable[[Pair], None] | None, dict[str, object], str, str]] = [
        (lambda files: own.issue(files, "alice", CLIENT), {},
         "refuses .*'alice' is not marked as a node", "link .*wrongNode: .*'alice' is not marked"),
        (lambda files: own.issue(files, "alice", CLIENT), {"cluster": ""},
         "refuses .*'alice' is not marked as a node", "link .*wrongNode: .*'alice' is not marked"),
        (lambda files: other.issue_node(files, STORE, ()), {},
         "TLS failed: .*unknown ca.*--tls-ca", "TLS handshake .*issuer certificate"),
        (lambda files: own.issue(files, "x", NODE, at=LONG_AGO, uris=[mark_of(STORE)]), {},
         "TLS failed: .*certificate expired.*--tls-ca", "TLS handshake .*certificate has expired"),
        (lambda files: own.issue_node(files, "6" * 32, ()), {},
         "refuses .*store 6+, and", "link .*wrongNode: .*store 6+, and"),
        (right, {"position": 7},
         "refuses .*position 7, which is none", "link .*wrongPosition: .*position 7"),
        (None, {}, "refuses .*talk by TLS only", "link .*plain: a node came without TLS"),
    ]  # fmt: skip
    try:
        node.start()
        for issue, hello, told, _audited in refused:
            assert re.search(told, call(issue, **hello))
        assert call(right) == store
        for *_, audited in refused:
            entry = rf"hocket\.audit: denied: {audited}"
            wait_for(lambda entry=entry: re.search(entry, node.said()), 20, node.said)
        assert node.said().count("denied: ") == len(refused)
    finally:
        node.kill()
