"""What every storage tier, codec and authenticator has to do, as tests for pytest to run.

A plug-in's tests have a subclass that says how to make the thing, and pytest collects the rest:

    from hocket.plugins.testing import StorageTierSuite

    class TestShelf(StorageTierSuite):
        def open_tier(self, path):
            return Shelf(path)

Nothing here is an `assert` statement, which `python -O` would leave out.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from hocket.deadline import in_seconds
from hocket.log.tier.place import StorageTier
from hocket.plugins.tiers import check
from hocket.wire.named_codec import BatchCodec, checked

STORE = "0123456789abcdef0123456789abcdef"  # a store's id
THREADS = 8
SEGMENT = f"{STORE}/7/00000000000000000000-00000000000000000001.log"
OTHER = f"{STORE}/7/00000000000000000100-00000000000000000042.log"
ANOTHER_LOG = f"{STORE}/70/00000000000000000000-00000000000000000001.log"
ANOTHER_STORE = f"{STORE[::-1]}/7/00000000000000000000-00000000000000000001.log"


def holds(condition: object, words: str) -> None:
    if not condition:
        raise AssertionError(words)


def raises(kinds: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], Any],
           words: str) -> None:  # fmt: skip
    try:
        call()
    except kinds:
        return
    except Exception as error:
        raise AssertionError(f"{words}; it raised {type(error).__name__}: {error}") from error
    raise AssertionError(f"{words}; it raised nothing")


def _in_threads(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as threads:
        return [each.result() for each in [threads.submit(call) for call in calls]]


class _Broken(io.RawIOBase):
    """Ends in the middle, as a disk does that fails."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise OSError("the disk does not hand out the rest")
        count = min(len(buffer), self._left)
        buffer[:count] = bytes(count)
        self._left -= count
        return count


class _Full(io.RawIOBase):
    """Takes a little, as a full disk does."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        raise OSError(f"there is no room for {len(data)} bytes")


class StorageTierSuite:
    is_durable = True  # what was stored is there for another `open_tier` of the same path

    def open_tier(self, path: Path) -> StorageTier:
        """The tier, in a place of this test's own."""
        raise NotImplementedError

    def _fetched(self, tier: StorageTier, key: str) -> bytes:
        target = io.BytesIO()
        tier.fetch(key, target)
        return target.getvalue()

    def test_it_has_the_methods_and_rules_of_a_tier(self, tmp_path: Path) -> None:
        check(self.open_tier(tmp_path))

    def test_what_was_stored_is_handed_out(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        for size in (1, 4_096, (1 << 20) + 3, 3 << 20):
            data = Random(size).randbytes(size)
            tier.store(SEGMENT, io.BytesIO(data))
            holds(self._fetched(tier, SEGMENT) == data, f"{size} bytes come back as others")

    def test_what_is_stored_again_takes_the_place_of_what_was_there(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        tier.store(SEGMENT, io.BytesIO(b"long" * 1_000))
        tier.store(SEGMENT, io.BytesIO(b"short"))
        holds(self._fetched(tier, SEGMENT) == b"short", "what was there before is still there")

    def test_what_was_never_stored_is_not_found(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        words = "fetch of an unknown key must raise FileNotFoundError"
        raises(FileNotFoundError, lambda: self._fetched(tier, SEGMENT), words)
        tier.store(OTHER, io.BytesIO(b"other"))
        raises(FileNotFoundError, lambda: self._fetched(tier, SEGMENT), words)

    def test_what_was_removed_is_gone_and_nothing_else(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        tier.remove(SEGMENT)  # there is nothing: no error
        for key in (SEGMENT, OTHER):
            tier.store(key, io.BytesIO(key.encode()))
        tier.remove(SEGMENT)
        tier.remove(SEGMENT)
        words = "a key that was removed must not be found"
        raises(FileNotFoundError, lambda: self._fetched(tier, SEGMENT), words)
        holds(self._fetched(tier, OTHER) == OTHER.encode(), "another key was removed as well")
        holds(set(tier.keys(f"{STORE}/")) == {OTHER}, "a key that was removed is still listed")

    def test_keys_are_listed_by_what_they_begin_with(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        holds(not list(tier.keys(f"{STORE}/")), "nothing was stored, and there are keys")
        for key in (SEGMENT, OTHER, ANOTHER_LOG, ANOTHER_STORE):
            tier.store(key, io.BytesIO(b"x"))
        for prefix, wanted in (
            (f"{STORE}/", {SEGMENT, OTHER, ANOTHER_LOG}),
            (f"{STORE}/7/", {SEGMENT, OTHER}),
            (f"{STORE}/8/", set()),
        ):
            found = list(tier.keys(prefix))
            holds(set(found) == wanted, f"keys of {prefix} are {sorted(found)}")
            holds(len(found) == len(set(found)), f"keys of {prefix} are listed twice")

    def test_a_source_that_breaks_off_is_no_success(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        broken = io.BufferedReader(_Broken(100_000))
        words = "store must raise what its source raises"
        raises(OSError, lambda: tier.store(SEGMENT, broken), words)

    def test_a_target_that_takes_nothing_is_no_success(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        tier.store(SEGMENT, io.BytesIO(b"x" * 10_000))
        words = "fetch must raise what its target raises"
        full: Any = _Full()
        raises(OSError, lambda: tier.fetch(SEGMENT, full), words)

    def test_several_threads_use_it_at_once(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path)
        data = {
            f"{STORE}/{log}/{0:020}-{1:020}.log": Random(log).randbytes(50_000)
            for log in range(3 * THREADS)
        }
        _in_threads(lambda key=key: tier.store(key, io.BytesIO(data[key])) for key in data)  # type: ignore[misc]
        fetched = _in_threads(lambda key=key: self._fetched(tier, key) for key in data)  # type: ignore[misc]
        holds(fetched == list(data.values()), "threads get what others have stored")

    def test_what_was_stored_outlives_the_node(self, tmp_path: Path) -> None:
        if not self.is_durable:
            return
        self.open_tier(tmp_path).store(SEGMENT, io.BytesIO(b"kept"))
        again = self.open_tier(tmp_path)
        holds(self._fetched(again, SEGMENT) == b"kept", "another start does not find it")
        holds(list(again.keys(f"{STORE}/")) == [SEGMENT], "another start does not list it")


class CodecSuite:
    def open_codec(self) -> BatchCodec:
        raise NotImplementedError

    def _samples(self) -> list[bytes]:
        random = Random("codec")
        text = b" ".join(b"order %d of customer %d" % (n, n % 7) for n in range(2_000))
        return [b"x", bytes(64), text, random.randbytes(10_000), text * 20]

    def test_it_has_the_methods_of_a_codec(self) -> None:
        checked("a-codec", self.open_codec())

    def test_what_it_compresses_comes_back(self) -> None:
        codec = self.open_codec()
        for raw in self._samples():
            packed = codec.compress(raw)
            back = codec.decompress(memoryview(packed), len(raw))
            holds(bytes(back) == raw, f"{len(raw)} bytes come back as others")

    def test_it_makes_something_smaller(self) -> None:
        text = self._samples()[2]
        holds(len(self.open_codec().compress(text)) < len(text), "a text does not become smaller")

    def test_another_length_is_refused(self) -> None:
        codec = self.open_codec()
        raw = self._samples()[2]
        packed = codec.compress(raw)
        for length in (len(raw) - 1, len(raw) + 1, 0):
            self._is_refused(codec, packed, length, f"{len(raw)} bytes are handed out as {length}")

    def test_what_was_cut_or_made_up_is_refused(self) -> None:
        codec = self.open_codec()
        raw = self._samples()[2]
        packed = codec.compress(raw)
        for cut in (0, 1, len(packed) // 2, len(packed) - 1):
            self._is_refused(codec, packed[:cut], len(raw), f"the first {cut} bytes are enough")
        for seed in range(20):
            made_up = Random(seed).randbytes(200)
            self._is_refused(codec, made_up, 1 << 20, "bytes that are none of its own are opened")

    def test_bytes_that_say_they_are_many_take_no_memory(self) -> None:
        import tracemalloc

        codec = self.open_codec()
        packed = codec.compress(bytes(16 << 20))
        tracemalloc.start()
        try:
            self._is_refused(codec, packed, 100, "16 MiB are handed out as 100 bytes")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        holds(peak < 4 << 20, f"for 100 bytes it took {peak >> 20} MiB: it opens more than asked")

    def test_several_threads_use_it_at_once(self) -> None:
        codec = self.open_codec()
        samples = self._samples() * THREADS

        def there_and_back(raw: bytes) -> bytes:
            return bytes(codec.decompress(memoryview(codec.compress(raw)), len(raw)))

        found = _in_threads(lambda raw=raw: there_and_back(raw) for raw in samples)  # type: ignore[misc]
        holds(found == samples, "threads get what others have compressed")

    @staticmethod
    def _is_refused(codec: BatchCodec, packed: bytes, length: int, words: str) -> None:
        """By an error, or by another length: then the batch counts as damaged."""
        try:
            raw = codec.decompress(memoryview(packed), length)
        except Exception:  # noqa: BLE001 - whatever it is
            return
        holds(len(raw) != length, words)
        holds(len(raw) <= length, f"of {length} bytes that were asked for it made {len(raw)}")


class AuthenticatorSuite:
    """`token_of` makes a token that the plug-in takes for the user's."""

    seconds_max = 0.02  # of a processor, for a token that is none: all clients wait meanwhile

    def plugin(self) -> type:
        raise NotImplementedError

    def settings(self, path: Path) -> dict[str, Any]:
        """As they stand below [plugins.NAME]; `path` is a directory of this test's own."""
        del path
        return {}

    def token_of(self, user: str) -> str:
        raise NotImplementedError

    def wrong_tokens(self) -> list[str]:
        """Others that must not do: too old, for somebody else, signed by another."""
        return []

    def _strange(self) -> list[str]:
        token = self.token_of("alice")
        return [
            "", "x", " ", "..", "a.b.c", "Bearer", "null", "{}", "hkt_1_alice_0000", "\x00",
            "é" * 50, "\U0001f600", "=" * 1_000, "." * 4_096, "x" * 65_536,
            f"{token}x", f" {token}", token[:-1], token[1:], token[::-1],
        ]  # fmt: skip

    def _asked(self, path: Path) -> Callable[[str], Any]:
        from hocket.plugins.found import make

        name = self.plugin().__name__.lower()
        function = make(name, self.plugin(), self.settings(path)).functions["authenticate"]
        return lambda token: function(token, "127.0.0.1")

    def test_a_token_names_its_user(self, tmp_path: Path) -> None:
        ask = self._asked(tmp_path)
        for user in ("alice", "bob"):
            holds(ask(self.token_of(user)) == user, f"the token of {user} is not taken for theirs")

    def test_what_is_no_token_names_nobody(self, tmp_path: Path) -> None:
        ask = self._asked(tmp_path)
        for token in (*self._strange(), *self.wrong_tokens()):
            answer = self._answer(ask, token)
            holds(answer is None, f"{token[:40]!r} is taken for the token of {answer!r}")

    def test_a_token_that_was_changed_names_nobody(self, tmp_path: Path) -> None:
        ask = self._asked(tmp_path)
        token = self.token_of("alice")
        random = Random("changed")
        # The last character of a text in base64 may stand for bits that nobody looks at.
        for at in random.sample(range(len(token) - 1), min(100, len(token) - 1)):
            other = "A" if token[at] != "A" else "B"
            changed = f"{token[:at]}{other}{token[at + 1 :]}"
            answer = self._answer(ask, changed)
            holds(answer is None, f"with another character at {at} it is {answer!r}'s all the same")

    def test_what_is_no_token_is_seen_at_once(self, tmp_path: Path) -> None:
        ask = self._asked(tmp_path)
        for token in self._strange():
            took = []
            for _ in range(3):
                began = process_time()
                self._answer(ask, token)
                took.append(process_time() - began)
            holds(min(took) < self.seconds_max, f"{token[:40]!r} took {in_seconds(min(took))}")

    def test_no_token_is_written_to_the_log(self, tmp_path: Path) -> None:
        written = io.StringIO()
        handler = logging.StreamHandler(written)
        root = logging.getLogger()
        before = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            ask = self._asked(tmp_path)
            tokens = [self.token_of("alice"), *self.wrong_tokens()]
            for token in tokens:
                self._answer(ask, token)
        finally:
            root.removeHandler(handler)
            root.setLevel(before)
        for token in tokens:
            holds(token not in written.getvalue(), "a token is in the log")

    @staticmethod
    def _answer(ask: Callable[[str], Any], token: str) -> Any:
        try:
            return ask(token)
        except Exception as error:
            raise AssertionError(
                f"{token[:40]!r} makes it raise {type(error).__name__}: {error}; a token that is "
                "none is answered with None"
            ) from error
