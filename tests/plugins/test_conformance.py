"""The conformance suites: what is right passes, and each mistake that is planted is found."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import io
import json
import logging
import lzma
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import jwt
import pytest

from hocket.plugins import TierRules, hook
from hocket.plugins.settings import settings_of
from hocket.plugins.testing import AuthenticatorSuite, CodecSuite, StorageTierSuite
from tests.plugins.test_examples import EXAMPLES, key_set


def example(name: str) -> ModuleType:
    """The module of an example, from its own folder."""
    path = EXAMPLES / name / f"hocket_{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finds(suite: Any, test: str, tmp_path: Path) -> None:
    """This test of the suite fails; and it is the suite that says so."""
    run = getattr(suite, test)
    takes_path = "tmp_path" in inspect.signature(run).parameters
    with pytest.raises((AssertionError, TypeError, OSError, RuntimeError)):
        run(tmp_path) if takes_path else run()


# --- storage tiers ---------------------------------------------------------------------------


class Shelf:
    """A tier in a directory."""

    rules = TierRules()

    def __init__(self, path: Path) -> None:
        self.path = path

    def _file(self, key: str) -> Path:
        return self.path / key

    def store(self, key: str, source: BinaryIO) -> None:
        self._file(key).parent.mkdir(parents=True, exist_ok=True)
        self._file(key).write_bytes(source.read())

    def fetch(self, key: str, target: BinaryIO) -> None:
        target.write(self._file(key).read_bytes())

    def remove(self, key: str) -> None:
        self._file(key).unlink(missing_ok=True)

    def keys(self, prefix: str) -> list[str]:
        found = [each for each in self.path.rglob("*") if each.is_file()]
        names = [each.relative_to(self.path).as_posix() for each in found]
        return [name for name in names if name.startswith(prefix)]


class TestShelf(StorageTierSuite):
    def open_tier(self, path: Path) -> Shelf:
        return Shelf(path)


class CutsShort(Shelf):
    def fetch(self, key: str, target: BinaryIO) -> None:
        target.write(self._file(key).read_bytes()[: 1 << 20])


class Appends(Shelf):
    def store(self, key: str, source: BinaryIO) -> None:
        before = self._file(key).read_bytes() if self._file(key).exists() else b""
        super().store(key, io.BytesIO(before + source.read()))


class Nothing(Shelf):
    def fetch(self, key: str, target: BinaryIO) -> None:
        if self._file(key).exists():
            super().fetch(key, target)


class FailsToRemoveTwice(Shelf):
    def remove(self, key: str) -> None:
        self._file(key).unlink()


class RemovesAll(Shelf):
    def remove(self, key: str) -> None:
        for each in self._file(key).parent.glob("*"):
            each.unlink()


class RemovesNothing(Shelf):
    def remove(self, key: str) -> None:
        del key


class ListsAll(Shelf):
    def keys(self, prefix: str) -> list[str]:
        return super().keys("")


class ListsByWord(Shelf):
    def keys(self, prefix: str) -> list[str]:
        return super().keys(prefix.rstrip("/"))


class SwallowsErrors(Shelf):
    def store(self, key: str, source: BinaryIO) -> None:
        try:
            super().store(key, source)
        except OSError:
            return

    def fetch(self, key: str, target: BinaryIO) -> None:
        try:
            super().fetch(key, target)
        except FileNotFoundError:
            raise
        except OSError:
            return


class OneAtATime(Shelf):
    def store(self, key: str, source: BinaryIO) -> None:
        self.key = key
        time.sleep(0.001)
        super().store(self.key, source)


class Forgets(Shelf):
    def __init__(self, path: Path) -> None:
        super().__init__(path / str(time.monotonic_ns()))
        self.path.mkdir()


class WithoutRules(Shelf):
    rules = None  # type: ignore[assignment]


class ThatNeverGoes(Shelf):
    rules = TierRules(after=None)


@pytest.mark.parametrize(
    ("bad", "test"),
    [
        (CutsShort, "test_what_was_stored_is_handed_out"),
        (Appends, "test_what_is_stored_again_takes_the_place_of_what_was_there"),
        (Nothing, "test_what_was_never_stored_is_not_found"),
        (FailsToRemoveTwice, "test_what_was_removed_is_gone_and_nothing_else"),
        (RemovesAll, "test_what_was_removed_is_gone_and_nothing_else"),
        (RemovesNothing, "test_what_was_removed_is_gone_and_nothing_else"),
        (ListsAll, "test_keys_are_listed_by_what_they_begin_with"),
        (ListsByWord, "test_keys_are_listed_by_what_they_begin_with"),
        (SwallowsErrors, "test_a_source_that_breaks_off_is_no_success"),
        (SwallowsErrors, "test_a_target_that_takes_nothing_is_no_success"),
        (OneAtATime, "test_several_threads_use_it_at_once"),
        (Forgets, "test_what_was_stored_outlives_the_node"),
        (WithoutRules, "test_it_has_the_methods_and_rules_of_a_tier"),
        (ThatNeverGoes, "test_it_has_the_methods_and_rules_of_a_tier"),
    ],
)
def test_a_bad_tier_is_found(bad: type[Shelf], test: str, tmp_path: Path):
    class Suite(StorageTierSuite):
        def open_tier(self, path: Path) -> Shelf:
            return bad(path)

    finds(Suite(), test, tmp_path)


# --- codecs ----------------------------------------------------------------------------------


class Xz:
    """The codec of the guide: the standard library's lzma."""

    def compress(self, raw: bytes) -> bytes:
        return lzma.compress(raw, preset=1)

    def decompress(self, packed: memoryview, length: int) -> bytes:
        opened = lzma.LZMADecompressor()
        raw = opened.decompress(packed, max_length=length)
        # The end may be all that is left.
        if not opened.eof and opened.decompress(b"", max_length=1):
            raise ValueError(f"there are more than {length} bytes")
        if not opened.eof or opened.unused_data:
            raise ValueError("it does not end where it should")
        return raw


class TestXz(CodecSuite):
    def open_codec(self) -> Xz:
        return Xz()


class AnyLength(Xz):
    def decompress(self, packed: memoryview, length: int) -> bytes:
        return lzma.decompress(packed)


class Padded(Xz):
    def decompress(self, packed: memoryview, length: int) -> bytes:
        try:
            raw = lzma.LZMADecompressor().decompress(packed, max_length=length)
        except lzma.LZMAError:
            raw = b""
        return raw.ljust(length, b"\0")


class Stores(Xz):
    def compress(self, raw: bytes) -> bytes:
        return raw

    def decompress(self, packed: memoryview, length: int) -> bytes:
        if len(packed) != length:
            raise ValueError("another length")
        return bytes(packed)


class Other(Xz):
    def decompress(self, packed: memoryview, length: int) -> bytes:
        return super().decompress(packed, length)[::-1]


class NotTogether(Xz):
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def compress(self, raw: bytes) -> bytes:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("two at once")
        try:
            time.sleep(0.001)
            return super().compress(raw)
        finally:
            self._lock.release()


class Half:
    def compress(self, raw: bytes) -> bytes:
        return raw


@pytest.mark.parametrize(
    ("bad", "test"),
    [
        (AnyLength, "test_another_length_is_refused"),
        (AnyLength, "test_bytes_that_say_they_are_many_take_no_memory"),
        (Padded, "test_what_was_cut_or_made_up_is_refused"),
        (Stores, "test_it_makes_something_smaller"),
        (Other, "test_what_it_compresses_comes_back"),
        (NotTogether, "test_several_threads_use_it_at_once"),
        (Half, "test_it_has_the_methods_of_a_codec"),
    ],
)
def test_a_bad_codec_is_found(bad: type, test: str, tmp_path: Path):
    class Suite(CodecSuite):
        def open_codec(self) -> Any:
            return bad()

    finds(Suite(), test, tmp_path)


# --- authenticators --------------------------------------------------------------------------


SECRET, ANOTHER = b"s" * 32, b"o" * 32


def signed(user: str, *, key: bytes = SECRET, **changes: object) -> str:
    claims = {"sub": user, "aud": "hocket", "exp": time.time() + 60, **changes}
    return jwt.encode(claims, key, "HS256", headers={"kid": "now"})


class TestSignedTokens(AuthenticatorSuite):
    def plugin(self) -> type:
        return example("signed_tokens").SignedTokens

    def settings(self, path: Path) -> dict[str, Any]:
        keys = path / "keys.json"
        keys.write_text(json.dumps(key_set(now=SECRET)))
        return {"keys": str(keys), "audience": "hocket"}

    def token_of(self, user: str) -> str:
        return signed(user)

    def wrong_tokens(self) -> list[str]:
        return [
            signed("alice", key=ANOTHER), signed("alice", exp=time.time() - 60),
            signed("alice", aud="another"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "token",
        [
            signed("alice", nbf=time.time() + 3_600),
            signed("alice", iat=time.time() + 3_600),
            signed("alice", exp=float("nan")),
            signed("alice", exp=float("inf")),
            signed("alice", exp="soon"),
            signed("alice", sub=None),
            signed("alice", sub=["alice"]),
            signed("alice", filling="x" * 20_000),
            signed("alice", nested=json.loads("[" * 500 + "]" * 500)).replace("W1tb", "W1tbW1tb"),
            jwt.encode({"sub": "alice", "aud": "hocket", "exp": 1 << 40}, None, "none"),
            jwt.encode({"sub": "alice", "aud": "hocket"}, SECRET, "HS256"),
            "." * 5_000,
            "e30.e30.e30",
            "\udc80.e30.e30",
        ],
    )
    def test_nonsense_is_nobodys(self, token: str, tmp_path: Path):
        kind = self.plugin()
        plugin = kind(settings_of(kind.Settings, self.settings(tmp_path)))
        assert plugin.authenticate(token) is None


def secret_of(user: str) -> str:
    return hashlib.sha256(b"pepper" + user.encode()).hexdigest()


class Simple:
    """Tokens are USER:SECRET."""

    api = 1

    @hook
    def authenticate(self, token: str) -> str | None:
        user, _, secret = token.partition(":")
        return user if user and secret == secret_of(user) else None


class TestSimple(AuthenticatorSuite):
    kind: type = Simple

    def plugin(self) -> type:
        return self.kind

    def token_of(self, user: str) -> str:
        return f"{user}:{secret_of(user)}"

    def wrong_tokens(self) -> list[str]:
        return [f"alice:{secret_of('bob')}"]


class Raises(Simple):
    @hook
    def authenticate(self, token: str) -> str | None:
        user, secret = token.split(":")
        return user if secret == secret_of(user) else None


class TakesAll(Simple):
    @hook
    def authenticate(self, token: str) -> str | None:
        return token.partition(":")[0] or None


class LooksAtTheBeginning(Simple):
    @hook
    def authenticate(self, token: str) -> str | None:
        user, _, secret = token.partition(":")
        return user if secret[:8] == secret_of(user)[:8] else None


class Slow(Simple):
    @hook
    def authenticate(self, token: str) -> str | None:
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass
        return super().authenticate(token)


class Tells(Simple):
    @hook
    def authenticate(self, token: str) -> str | None:
        logging.getLogger("tells").info("somebody comes with %s", token)
        return super().authenticate(token)


class KnowsNobody(Simple):
    @hook
    def authenticate(self, token: str) -> str | None:
        del token


@pytest.mark.parametrize(
    ("bad", "test"),
    [
        (Raises, "test_what_is_no_token_names_nobody"),
        (TakesAll, "test_what_is_no_token_names_nobody"),
        (TakesAll, "test_a_broker_lets_its_users_in_and_nobody_else"),
        (LooksAtTheBeginning, "test_a_token_that_was_changed_names_nobody"),
        (Slow, "test_what_is_no_token_is_seen_at_once"),
        (Tells, "test_no_token_is_written_to_the_log"),
        (KnowsNobody, "test_a_token_names_its_user"),
    ],
)
def test_a_bad_authenticator_is_found(bad: type, test: str, tmp_path: Path):
    suite = TestSimple()
    suite.kind = bad
    finds(suite, test, tmp_path)
