"""Frames of numbers alone: the short way says what the library of Cap'n Proto says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from hocket.errors import OutOfRange, ProtocolError, WrongType
from hocket.frames import Deliver, Done, Frame, Moved
from hocket.wire import frame_codec
from hocket.wire.frame_codec import decode, encode
from tests.support.wire.frame_strategies import frames_of

MOULDS = frame_codec._MOULDS
KINDS = sorted(MOULDS, key=lambda kind: kind.__name__)


def by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_codec, "_MOULDS", {})
    monkeypatch.setattr(frame_codec, "_MOULDS_BY_LENGTH", {})


def test_the_busy_frame_goes_by_a_mould() -> None:
    assert {Deliver, Done, Moved} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=30)
@given(data=st.data())
def test_the_bytes_are_those_of_the_library(kind: type[Frame], data: st.DataObject) -> None:
    frame = data.draw(frames_of(kind))
    header = encode(frame)
    assert header == frame_codec._encode(frame)
    assert MOULDS[kind].length == len(header)
    assert decode(header) == frame


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_bytes_that_are_changed_mean_what_the_library_says(
    kind: type[Frame], monkeypatch: pytest.MonkeyPatch
) -> None:
    header = encode(kind(*range(1, 1 + len(kind.__dataclass_fields__))))
    changed = [
        header[:at] + bytes([header[at] ^ bit]) + header[at + 1 :]
        for at in range(len(header))
        for bit in (1, 0x80)
    ]
    shortly = [said_of(each) for each in changed]
    with monkeypatch.context() as patched:
        by_the_library(patched)
        assert shortly == [said_of(each) for each in changed]


def said_of(header: bytes) -> Frame | str:
    try:
        return decode(header)
    except ProtocolError as error:
        return str(error)


@pytest.mark.parametrize("wrong", [-1, 2**64, "1", None, 1.5, b"1"])
def test_what_is_no_number_or_does_not_fit_is_treated_as_ever(
    wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = Deliver(0, 1, 2, wrong, 4)  # type: ignore[arg-type]
    shortly = written(frame)
    with monkeypatch.context() as patched:
        by_the_library(patched)
        assert written(frame) == shortly


def written(frame: Frame) -> bytes | tuple[type[Exception], str]:
    try:
        return encode(frame)
    except (OutOfRange, WrongType) as error:
        return type(error), str(error)


def test_a_frame_that_is_not_permitted_is_refused_as_ever() -> None:
    with pytest.raises(ProtocolError, match="Deliver is not allowed here"):
        decode(encode(Deliver(0, 1, 2, 3, 4)), frozenset({Done}))
