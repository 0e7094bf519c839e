"""Certificates made for the tests: good ones, and every kind of bad one."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hocket.adapters.tls import server_context
from hocket.cli.authority import CLIENT, SERVER, Authority, Pair

HERE = ("localhost", "127.0.0.1")
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
TOMORROW = datetime.now(UTC) + timedelta(days=1)


@dataclass
class Certificates:
    directory: Path
    authority: Path
    server: Pair
    alice: Pair

    def client(self, path: Path | None = None, *, of: Pair | None = None) -> ssl.SSLContext:
        """Of a client that trusts `path`, and shows the certificate `of`."""
        context = ssl.create_default_context(cafile=path or self.authority)
        if of is not None:
            context.load_cert_chain(of.certificate, of.key)
        return context

    def broker(self, files: Pair | None = None, *, asks: bool = False) -> ssl.SSLContext:
        files = files or self.server
        return server_context(files.certificate, files.key, self.authority if asks else None)

    def bad_server(self, kind: str) -> Pair:
        """One that no client should trust."""
        files = Pair.named(self.directory, f"server-{kind}")
        authority = Authority.load(Pair.named(self.directory, "ca"))
        if kind == "wrong host":
            authority.issue(files, "broker", SERVER, ["elsewhere.example"])
        elif kind == "expired":
            authority.issue(files, "broker", SERVER, HERE, at=LONG_AGO)
        elif kind == "not yet valid":
            authority.issue(files, "broker", SERVER, HERE, at=TOMORROW)
        elif kind == "of a client":
            authority.issue(files, "broker", CLIENT, HERE)
        elif kind == "self-signed":
            Authority.create("broker").save(files)
        else:
            assert kind == "wrong authority"
            Authority.create("another").issue(files, "broker", SERVER, HERE)
        return files

    def bad_client(self, kind: str) -> Pair:
        """One that the broker should not trust, though it names a user."""
        files = Pair.named(self.directory, f"client-{kind}")
        authority = Authority.load(Pair.named(self.directory, "ca"))
        if kind == "expired":
            authority.issue(files, "alice", CLIENT, at=LONG_AGO)
        elif kind == "not yet valid":
            authority.issue(files, "alice", CLIENT, at=TOMORROW)
        elif kind == "of a broker":
            authority.issue(files, "alice", SERVER)
        elif kind == "self-signed":
            Authority.create("alice").save(files)
        else:
            assert kind == "wrong authority"
            Authority.create("another").issue(files, "alice", CLIENT)
        return files


def made(directory: Path) -> Certificates:
    authority = Authority.create("tests")
    authority.save(Pair.named(directory, "ca"))
    server, alice = Pair.named(directory, "server"), Pair.named(directory, "alice")
    authority.issue(server, "broker", SERVER, HERE)
    authority.issue(alice, "alice", CLIENT)
    return Certificates(directory, directory / "ca.pem", server, alice)
