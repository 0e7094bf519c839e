from __future__ import annotations

import pytest

from hocket.addresses import Address
from hocket.client.connection.address import parse_url
from hocket.errors import BadName, OutOfRange, WrongType


@pytest.mark.parametrize(
    ("url", "addresses", "tls"),
    [
        ("hocket://localhost", [("localhost", 4150)], False),
        ("hocket://localhost/", [("localhost", 4150)], False),
        ("HocketS://localhost", [("localhost", 4150)], True),
        ("hockets://broker.example:9", [("broker.example", 9)], True),
        ("hocket://a:1,b:2, c", [("a", 1), ("b", 2), ("c", 4150)], False),
        ("hocket://[::1]", [("::1", 4150)], False),
        ("localhost:4151", [("localhost", 4151)], False),
        ("localhost", [("localhost", 4150)], False),
        (" localhost/\n", [("localhost", 4150)], False),
        ("a:1,b:2", [("a", 1), ("b", 2)], False),
        ("[::1]:4151", [("::1", 4151)], False),
        ("[::1]", [("::1", 4150)], False),
        ("hocket://[fe80::1%eth0]:65535,10.0.0.1", [("fe80::1%eth0", 65535), ("10.0.0.1", 4150)],
         False),
    ],
)  # fmt: skip
def test_a_url_names_places_to_try(url, addresses, tls):
    target = parse_url(url)
    assert target.addresses == tuple(Address(*each) for each in addresses)
    assert target.tls is tls
    assert parse_url(str(target)) == target


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        (None, WrongType, "must be a str, not NoneType"),
        (b"hocket://a", WrongType, "not bytes"),
        ("", BadName, "looks like hocket://host:port"),
        (" ", BadName, "looks like hocket://host:port"),
        ("http://localhost", BadName, "looks like hocket://host:port"),
        ("hocket://", BadName, "looks like hocket://host:port"),
        ("hocket:///", BadName, "'' is not the name of a host"),
        (":4150", BadName, "'' is not the name of a host"),
        ("::1", BadName, "in brackets"),
        ("a:1/path", OutOfRange, "not '1/path'"),
        ("a:1,b:x", OutOfRange, "not 'x'"),
        ("hocket://a,,b", BadName, "'' is not the name of a host"),
        ("hocket://a b", BadName, "'a b' is not the name of a host"),
        ("hocket://user@host", BadName, "names hosts only"),
        ("user:secret@host", BadName, "names hosts only"),
        ("hocket://::1", BadName, "in brackets"),
        ("hocket://[::1", BadName, "looks like [::1]"),
        ("hocket://[::1]4150", BadName, "looks like [::1]"),
        ("hocket://a:", OutOfRange, "not ''"),
        ("hocket://a:0", OutOfRange, "from 1 to 65535, not '0'"),
        ("hocket://a:65536", OutOfRange, "not '65536'"),
        ("hocket://a:port", OutOfRange, "not 'port'"),
        ("hocket://a:-1", OutOfRange, "not '-1'"),
    ],
)
def test_a_bad_url_says_what_is_wrong(url, error, words):
    with pytest.raises(error) as caught:
        parse_url(url)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_a_scheme_tls_is_what_the_caller_says():
    assert parse_url("a:1", tls=True) == parse_url("hockets://a:1")
    assert parse_url("hocket://a:1", tls=True).tls is False
    assert parse_url("hockets://a:1", tls=False).tls is True
