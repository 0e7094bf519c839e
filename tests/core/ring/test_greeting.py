"""On which grounds a node refuses another, and that a good one is let in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hocket.core.ring.circle import candidates
from hocket.core.ring.greeting import Incoming, Namesake, is_loopback, refusal
from hocket.node_frames import REFUSALS, NodeHello

NODE = "a" * 32
GOOD = NodeHello(
    cluster="c" * 32, node=NODE, name="n2", software="hocket 1", address="127.0.0.1:2",
    position=candidates(NODE.encode())[3], boot=7,
)  # fmt: skip
HERE: dict[str, Any] = {
    "cluster": "c" * 32, "node": "c" * 32, "address": "127.0.0.1:1", "boot": 1, "known": None,
    "has_tls": False, "from_address": "127.0.0.1", "certificate_fault": "", "namesake": None,
}  # fmt: skip
NAMESAKE = Namesake("e" * 32, "127.0.0.1:8")


def test_a_node_of_the_cluster_is_let_in():
    assert refusal(GOOD, **HERE) is None


def test_a_node_without_a_cluster_may_ask():
    assert refusal(replace(GOOD, cluster="", position=0), **HERE) is None


@pytest.mark.parametrize(
    ("hello", "here", "code", "words"),
    [
        ({"version_min": 2, "version_max": 3}, {}, "wrongVersion", "versions 2 to 3"),
        ({"node": "c" * 32, "boot": 1}, {}, "ownNode", "this very node"),
        ({"node": "c" * 32}, {}, "twice", "data directory copied"),
        ({}, {"from_address": "10.0.0.7"}, "plain", "hocket certs node"),
        ({}, {"is_of_another_user": True}, "plain", "start both as one user"),
        ({"cluster": ""}, {"is_of_another_user": True}, "plain", "hocket certs node"),
        ({}, {"has_tls": True, "certificate_fault": "it expired"}, "wrongNode", "it expired"),
        ({"cluster": "d" * 32}, {}, "wrongCluster", "a new --data"),
        ({"position": 12345}, {}, "wrongPosition", "none of the candidates"),
        ({}, {"known": Incoming("127.0.0.1:9", 8)}, "twice", "alive at 127.0.0.1:9"),
        ({"starting": True}, {"namesake": NAMESAKE}, "nameTaken", "127.0.0.1:8 has the name 'n2'"),
        ({"cluster": ""}, {"namesake": NAMESAKE}, "nameTaken", "with another --name"),
        (
            {"starting": True, "changers": "none"},
            {"changers": "schema 1.0 (closed, 0a)"},
            "otherPlugins",
            "there they are none; here schema 1.0 (closed, 0a)",
        ),
        (
            {"cluster": "", "changers": "b 1, a 1"},
            {"changers": "a 1, b 1"},
            "otherPlugins",
            "--plugins-may-differ",
        ),
    ],
)
def test_who_is_refused_and_why(hello: dict[str, Any], here: dict[str, Any], code: str, words: str):
    refused = refusal(replace(GOOD, **hello), **{**HERE, **here})
    assert refused is not None
    assert refused.code == code
    assert code in REFUSALS
    assert words in refused.text


def test_a_process_that_comes_back_replaces_its_old_link():
    same_address = Incoming(GOOD.address, 99)  # it was started anew
    same_process = Incoming("127.0.0.1:9", GOOD.boot)  # it is told by another address now
    assert refusal(GOOD, **{**HERE, "known": same_address}) is None
    assert refusal(GOOD, **{**HERE, "known": same_process}) is None


def test_nodes_that_serve_already_are_not_parted_for_their_names():
    assert refusal(GOOD, **{**HERE, "namesake": NAMESAKE}) is None


def test_beyond_loopback_a_good_certificate_is_enough():
    assert refusal(GOOD, **{**HERE, "has_tls": True, "from_address": "10.0.0.7"}) is None


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("localhost", True), ("10.0.0.1", False), ("::", False), ("example.org", False),
        ("fe80::1%eth0", False),
    ],
)  # fmt: skip
def test_what_loopback_is(host: str, is_one: bool):
    assert is_loopback(host) is is_one


@pytest.mark.parametrize(
    ("hello", "here"),
    [
        ({"starting": True, "changers": "a 1"}, {"changers": "a 1"}),
        ({"starting": True, "changers": ""}, {"changers": "a 1"}),  # an older version
        ({"starting": True, "changers": "a 1"}, {"changers": ""}),
        ({"starting": False, "changers": "a 1"}, {"changers": "a 2"}),  # both serve already
        ({"starting": True, "changers": "a 1", "changers_may_differ": True}, {"changers": "a 2"}),
        ({"starting": True, "changers": "a 1"}, {"changers": "a 2", "changers_may_differ": True}),
    ],
)
def test_plugins_are_the_same_or_may_differ(hello: dict[str, Any], here: dict[str, Any]):
    assert refusal(replace(GOOD, **hello), **{**HERE, **here}) is None
