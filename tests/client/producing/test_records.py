from __future__ import annotations

import pytest

from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Positions, Stamp, restamped
from hocket.client_core.producing.records import (
    RECORD_BYTES,
    checked,
    checked_header_list,
    checked_keys,
    checked_values,
)
from hocket.errors import MessageTooLarge, OutOfRange, WrongType
from hocket.model import MESSAGE_BYTES_MAX, Position
from hocket.wire.batch import check_entries, encode, parse


def test_a_record_is_made_unchangeable():
    value, key, header = bytearray(b"value"), bytearray(b"key"), bytearray(b"data")
    headers = {"name": header, "none": None}
    record, size = checked(value, key, headers, 5, "waiter")
    value[:], key[:], header[:] = b"VALUE", b"KEY", b"DATA"
    headers.clear()
    assert record == (b"value", b"key", (("name", b"data"), ("none", None)), 5, "waiter")
    assert size == 5 + 3 + 4 + 4 + 4 + 4 * RECORD_BYTES


def test_a_view_of_wider_items_is_taken_by_its_bytes():
    record, size = checked(memoryview(bytes(24)).cast("Q"), None, [("n", b"")], None)
    assert record[0] == bytes(24)
    assert size == 24 + 1 + 2 * RECORD_BYTES


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("text", None, None, None), WrongType, "encode it first"),
        ((5, None, None, None), WrongType, "a value must be bytes-like, not int"),
        ((None, None, None, None), WrongType, "not NoneType"),
        ((b"", "key", None, None), WrongType, "a key must be bytes-like, not str"),
        ((b"", 5, None, None), WrongType, "a key must be bytes-like, not int"),
        ((b"", None, "text", None), WrongType, "headers must be a mapping"),
        ((b"", None, 5, None), WrongType, "not int"),
        ((b"", None, [("a", b"", 1)], None), WrongType, "one is ('a', b'', 1)"),
        ((b"", None, {1: b""}, None), WrongType, "name must be a str, not int"),
        ((b"", None, {"\ud800": b""}, None), WrongType, "UTF-8"),
        ((b"", None, {"a": "text"}, None), WrongType, "header 'a' must be bytes-like"),
        ((b"", None, None, 1.5), WrongType, "microseconds since the epoch"),
        ((b"", None, None, True), WrongType, "not True"),
        ((b"", None, None, -1), OutOfRange, "not -1"),
        ((b"", None, None, 2**63), OutOfRange, f"not {2**63}"),
        ((bytes(MESSAGE_BYTES_MAX), None, None, None), MessageTooLarge, "is more than the"),
        ((b"", bytes(MESSAGE_BYTES_MAX), None, None), MessageTooLarge, "is more than the"),
        ((b"", None, {"a": bytes(MESSAGE_BYTES_MAX)}, None), MessageTooLarge, "is more than the"),
    ],
    ids=lambda value: None if isinstance(value, tuple) else str(value)[:30],
)
def test_a_bad_record_says_what_is_wrong(arguments, error, words):
    with pytest.raises(error) as caught:
        checked(*arguments)
    assert words in str(caught.value)


def test_many_records_are_checked_by_their_number():
    assert checked_values([b"a", bytearray(b"b")]) == [b"a", b"b"]
    assert checked_values((b"a", b"b")) == [b"a", b"b"]
    assert checked_keys([b"a", None, bytearray(b"c")], 3) == [b"a", None, b"c"]
    assert checked_header_list([None, {"a": b"b"}], 2) == [None, (("a", b"b"),)]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: checked_values([b"a", "b"]), WrongType, "values[1] must be bytes-like, not str"),
        (lambda: checked_values(b"abc"), WrongType, "values must be a list"),
        (lambda: checked_values("abc"), WrongType, "values must be a list"),
        (lambda: checked_values({b"a": 1}), WrongType, "values must be a list"),
        (lambda: checked_values(5), WrongType, "values must be a list, not int"),
        (lambda: checked_keys([b"a"], 2), OutOfRange, "1 keys for 2 values"),
        (lambda: checked_keys([5], 1), WrongType, "keys[0] must be bytes-like, not int"),
        (lambda: checked_header_list([{}], 2), OutOfRange, "1 headers for 2 values"),
    ],
)
def test_one_bad_record_among_many_is_named(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


# --- gatherings ----------------------------------------------------------------------------------


def test_a_restamped_batch_differs_in_its_stamp_alone():
    entry = encode(
        [b"one", b"two"], timestamps=[1, 2], keys=[b"k", None], headers=[{"a": b"b"}, None],
        codec="zstd", producer_id=b"a" * 16, epoch=1, sequence=7,
    )  # fmt: skip
    again = restamped(entry, Stamp(b"b" * 16, 2, 9))
    (info,) = check_entries(again)  # which checks every CRC
    assert (info.producer_id, info.epoch, info.sequence) == (b"b" * 16, 2, 9)
    old, new = parse(entry), parse(again)
    assert (new.values(), new.keys(), new.headers(), new.timestamps()) == (
        old.values(), old.keys(), old.headers(), old.timestamps(),
    )  # fmt: skip
    assert restamped(again, Stamp(b"a" * 16, 1, 7)) == entry


def test_a_gathering_drops_only_what_was_taken():
    gathering = Gathering(0, room=10)
    for record in (b"a", b"b"):
        gathering.items.append(record)
    taken = gathering.take()
    gathering.items.append(b"c")  # by another thread, meanwhile
    gathering.drop(len(taken))
    assert (taken, gathering.items) == ([b"a", b"b"], [b"c"])


def test_a_record_is_taken_back_by_identity():
    gathering = Gathering(0, room=10)
    first, second = bytes(bytearray(b"equal")), bytes(bytearray(b"equal"))
    gathering.items.append(first)
    gathering.items.append(second)
    assert gathering.take_back(first)
    assert gathering.items[0] is second
    assert not gathering.take_back(first)


def test_positions_of_a_batch():
    positions = Positions("t", 3, 10, 12)
    assert positions.position(1) == Position("t", 3, 11)
