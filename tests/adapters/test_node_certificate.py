"""Whose certificate it is: a node's of this store, and nobody else's."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hocket.adapters.node_certificate import check_node_certificate, mark_of
from hocket.adapters.tls import server_context
from hocket.cli.authority import CLIENT, NODE, SERVER, Authority, Pair

STORE = "3f0c5dfb2f5c4f0e8d6f0a4c9b1e7a52"
NOW = datetime(2031, 5, 6, tzinfo=UTC)
Issue = Callable[..., Pair]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nodes")
    Authority.create("the cluster's").save(Pair.named(where, "ca"))
    return where


@pytest.fixture
def issue(directory: Path) -> Issue:
    authority = Authority.load(Pair.named(directory, "ca"))

    def make(*stores: str, purpose: Any = NODE, at: datetime | None = None) -> Pair:
        files = Pair.named(directory, f"made-{len(list(directory.iterdir()))}")
        authority.issue(
            files, "node x", purpose, ["localhost"], at, uris=[mark_of(each) for each in stores]
        )
        return files

    return make


def decoded(files: Pair) -> dict[str, Any]:
    """As `getpeercert` shows it; `test_both_ends_of_a_connection_read_it` shows that it does."""
    found: dict[str, Any] = ssl._ssl._test_decode_cert(str(files.certificate))  # type: ignore[attr-defined]
    return found


def refusal(certificate: dict[str, Any] | None, now: datetime = NOW) -> str | None:
    return check_node_certificate(certificate, STORE, now.timestamp())


def test_the_certificate_of_this_node_is_not_refused(issue: Issue) -> None:
    assert refusal(decoded(issue(STORE, at=NOW))) is None


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda _issue: None, "it shows no certificate"),
        (lambda _issue: {}, "it shows no certificate"),
        (lambda issue: decoded(issue(purpose=CLIENT, at=NOW)), "'node x' is not marked as a node"),
        (lambda issue: decoded(issue(purpose=SERVER, at=NOW)), "'node x' is not marked as a node"),
        (lambda issue: {**decoded(issue(at=NOW)), "subject": ()}, "somebody without a name"),
        (lambda issue: decoded(issue("another", at=NOW)), "the store another, and .* is 3f0c5dfb"),
        (lambda issue: decoded(issue(STORE[:-1], at=NOW)), f"the store {STORE[:-1]}, and"),
        (lambda issue: decoded(issue(STORE + "0", at=NOW)), f"the store {STORE}0, and"),
        (lambda issue: decoded(issue(STORE, "another", at=NOW)), f"{STORE} and another, and"),
        (
            lambda issue: decoded(issue(STORE, at=NOW - timedelta(days=826))),
            "has expired on May  5 00:00:00 2031 GMT; make a new one",
        ),
        (
            lambda issue: decoded(issue(STORE, at=NOW + timedelta(hours=2))),
            "is not valid before May  6 01:00:00 2031 GMT; look at the clocks",
        ),
        (lambda issue: {**decoded(issue(STORE)), "notAfter": "soon"}, "does not say when"),
        (
            lambda issue: {"subjectAltName": decoded(issue(STORE))["subjectAltName"]},
            "does not say when",
        ),
        (
            lambda issue: {**decoded(issue(at=NOW)), "subjectAltName": (("DNS", mark_of(STORE)),)},
            "is not marked as a node's",
        ),
    ],
    ids=[
        "none", "unverified", "a client's", "a broker's", "no mark and no name", "another store",
        "a shorter id", "a longer id", "two stores", "expired", "not yet valid", "unreadable time",
        "no time", "the mark as a host",
    ],
)  # fmt: skip
def test_any_other_is_refused_and_the_refusal_says_why(
    issue: Issue, make: Callable[[Issue], dict[str, Any] | None], complaint: str
) -> None:
    said = refusal(make(issue))
    assert said is not None
    assert re.search(complaint, said), said


def test_it_is_valid_from_its_first_second_to_before_its_last(issue: Issue) -> None:
    certificate = decoded(issue(STORE, at=NOW))
    start, end = NOW - timedelta(hours=1), NOW + timedelta(days=825)
    second = timedelta(seconds=1)
    assert refusal(certificate, start) is refusal(certificate, end - second) is None
    assert refusal(certificate, start - second) is not None
    assert refusal(certificate, end) is not None


# --- in a handshake ------------------------------------------------------------------------------


def handshake(dialler: ssl.SSLContext, acceptor: ssl.SSLContext) -> tuple[Any, Any]:
    """What each end sees of the other. No socket: the bytes are carried by hand."""
    to_acceptor, to_dialler = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        dialler.wrap_bio(to_dialler, to_acceptor),
        acceptor.wrap_bio(to_acceptor, to_dialler, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].getpeercert(), ends[1].getpeercert()


def contexts(directory: Path, dials: Pair, accepts: Pair) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Pair.named(directory, "ca").certificate
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # a node is known by its store, not by its host
    client.load_verify_locations(authority)
    client.load_cert_chain(dials.certificate, dials.key)
    return client, server_context(accepts.certificate, accepts.key, authority)


def test_both_ends_of_a_connection_read_it(directory: Path, issue: Issue) -> None:
    one, other = issue("one"), issue("other")
    now = datetime.now(UTC).timestamp()
    seen_by_one, seen_by_other = handshake(*contexts(directory, one, other))
    assert check_node_certificate(seen_by_one, "other", now) is None
    assert check_node_certificate(seen_by_other, "one", now) is None
    assert (seen_by_one, seen_by_other) == (decoded(other), decoded(one))


@pytest.mark.parametrize("purpose", [SERVER, CLIENT], ids=["a broker's", "a client's"])
def test_tls_itself_refuses_a_certificate_for_one_direction_only(
    directory: Path, issue: Issue, purpose: Any
) -> None:
    half, whole = issue("half", purpose=purpose), issue("whole")
    pair = (half, whole) if purpose == SERVER else (whole, half)
    with pytest.raises(ssl.SSLError, match=r"purpose|certificate"):
        handshake(*contexts(directory, *pair))
