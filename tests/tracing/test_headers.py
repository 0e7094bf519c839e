"""The headers of W3C Trace Context, also those of somebody who means no good."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from hocket.tracing import Sending, carried, carried_by, contexts_in, counted, linked

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()


def test_a_context_comes_back_as_it_was_written():
    state = TraceState([("vendor", "x1"), ("t@system", "2")])
    context = SpanContext(int(TRACE, 16), int(SPAN, 16), True, TraceFlags(1), state)
    headers = dict(carried(context))
    assert headers == {"traceparent": PARENT, "tracestate": b"vendor=x1,t@system=2"}
    assert carried_by(headers) == context


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        "00-a-b-01",
        b"\xff" * 55,
        PARENT.upper(),
        PARENT + b"-more",
        PARENT + b"\n",
        b"ff" + PARENT[2:],
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        b"01" + PARENT[2:] + b"-" + b"x" * 1_000,
    ],
)
def test_what_is_no_context_is_as_if_it_were_not_there(value: bytes | None):
    assert carried_by({"traceparent": value}) is None


def test_a_later_version_may_say_more():
    found = carried_by({"traceparent": b"01" + PARENT[2:] + b"-more"})
    assert found is not None
    assert found.trace_id == int(TRACE, 16)


@pytest.mark.parametrize(
    "state", [b"", b"=", b"a=b" * 1_000, b"A=1", b"\x00", b"a=1,,", b",".join([b"a=1"] * 33), None]
)
def test_a_wrong_state_leaves_the_context_and_says_nothing(
    state: bytes | None, caplog: pytest.LogCaptureFixture
):
    found = carried_by({"traceparent": PARENT, "tracestate": state})
    assert found is not None
    assert not found.trace_state
    assert not caplog.records


def test_each_span_is_linked_once():
    headers = [{"traceparent": PARENT}, {}, {"traceparent": b"nonsense"}, {"traceparent": PARENT}]
    assert len(linked(contexts_in(headers))) == 1


def test_who_sends_a_message_on_sends_it_in_the_span_of_now(spans: object):
    with Sending("send", "t") as sending:
        (ours,) = sending.headers(None)
        old = {"traceparent": PARENT, "tracestate": b"a=1", "x": b"1"}
        assert sending.headers(old) == [("x", b"1"), ours]
        assert sending.headers(list(old.items())) == [("x", b"1"), ours]
        for nonsense in (3, "text", b"bytes"):
            assert sending.headers(nonsense) is nonsense
            assert sending.many_headers(nonsense, 2) is nonsense
        assert sending.many_headers([None, old], 2) == [[ours], [("x", b"1"), ours]]


def test_values_are_counted_without_being_used_up():
    assert counted(iter([b"a", b"b"])) == ([b"a", b"b"], 2)
    assert counted([b"a"]) == ([b"a"], 1)
    assert counted(3) == (3, 0)
