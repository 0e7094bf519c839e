"""Codecs of other packages: who compresses, who opens, and what those without them are told."""

from __future__ import annotations

import lzma
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hocket
from hocket.errors import CorruptData, OutOfRange
from hocket.plugins import Publish, hook
from hocket.plugins.found import Unusable
from hocket.plugins.testing import broker_with
from hocket.wire import batch, codec, named_codec
from tests.plugins.test_conformance import Xz as XzCodec
from tests.support.cli import environment, serving

TEXT = [b"order %d of customer %d" % (number, number % 7) for number in range(500)]


class Xz:
    api = 1

    @hook
    def codec(self) -> XzCodec:
        return XzCodec()


class Idle:
    api = 1

    @hook
    def on_close(self) -> None:
        """Nothing."""


@contextmanager
def installed(name: str = "xz", package: str = "hocket-xz") -> Iterator[None]:
    """As if a package that offers the codec were installed, for clients of this process."""
    named_codec._found[name] = named_codec.Found(name, package, XzCodec())
    try:
        yield
    finally:
        named_codec._found.pop(name, None)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    named_codec._found.clear()
    yield
    named_codec._found.clear()
    assert not any(named_codec._admitted.values())


def encoded(values: list[bytes] = TEXT) -> bytes:
    return batch.encode(values, timestamps=1, codec="xz")


def test_messages_are_compressed_by_a_producer_and_opened_by_a_consumer():
    with installed(), broker_with(Xz) as broker:
        broker.client.create_topic("t")
        with broker.client.producer("t", codec="xz") as producer:
            producer.send_many(TEXT)
        assert broker.client.describe("t").partitions[0].memory_bytes < sum(map(len, TEXT)) / 2
        with broker.client.subscribe("t", start="earliest") as subscription:
            assert [subscription.receive(10).value for _ in TEXT] == TEXT
        with broker.client.producer("t", codec="xz") as producer:
            producer.send(b"small" * 50)  # the broker opens it, to see whether it can be read


def test_a_broker_without_the_plug_in_refuses_the_batch_and_says_what_to_do():
    with installed(), broker_with(Idle) as broker:
        broker.client.create_topic("t")
        producer = broker.client.producer("t", codec="xz")
        producer.send_many(TEXT)
        words = r"codec 'xz' is not enabled .* package 'hocket-xz'"
        with pytest.raises(CorruptData, match=words):
            producer.close(10)
        assert broker.client.describe("t").partitions[0].end == 0


def test_a_reader_without_the_codec_is_told_its_name_and_its_package():
    with installed():
        entry = encoded()
    opened = batch.parse(entry)
    assert opened.codec == "xz"
    words = r"codec 'xz', which is not installed here \(it is in the package 'hocket-xz'\)"
    with pytest.raises(CorruptData, match=words):
        opened.values()


def test_on_publish_changes_what_such_a_codec_has_compressed():
    class Capitals:
        api = 1

        @hook
        def on_publish(self, batch: Publish) -> None:
            batch.values = [value.upper() for value in batch.values]

    with installed(), broker_with(Xz, Capitals) as broker:
        broker.client.create_topic("t")
        with broker.client.producer("t", codec="xz") as producer:
            producer.send_many(TEXT)
        with broker.client.subscribe("t", start="earliest") as subscription:
            assert [subscription.receive(10).value for _ in TEXT] == [each.upper() for each in TEXT]


def test_an_unknown_codec_is_refused_by_name():
    with pytest.raises(OutOfRange, match="codec must be one of none, lz4, zstd, not 'xz'"):
        codec.by_name("xz")


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"", "do not begin with the name"),
        (b"\x00\x00", "do not begin with the name"),
        (b"\x05\x00xz", "do not begin with the name"),
        (b"\x02\xffxz", "do not begin with the name"),
        (b"\x02\x00\xff\xff", "do not begin with the name"),
        (b"\x02\x00xz", "xz columns do not decompress"),
        (b"\x02\x00xzmade up", "xz columns do not decompress"),
        (b"\x02\x00xz" + lzma.compress(bytes(99)), "xz columns are 99 bytes, its prelude says 100"),
        (b"\x02\x00xz" + lzma.compress(bytes(101)), "xz columns do not decompress"),
    ],
)
def test_what_was_made_up_is_corrupt_data(packed: bytes, words: str):
    with installed(), pytest.raises(CorruptData, match=words):
        codec.decompress(codec.NAMED, memoryview(packed), 100)


def test_what_a_codec_cannot_compress_is_sent_as_it_is(caplog: pytest.LogCaptureFixture):
    class Fails(XzCodec):
        def compress(self, raw: bytes) -> bytes:
            raise MemoryError("no room")

    with installed():
        named_codec._found["xz"] = named_codec.Found("xz", "", Fails())
        opened = batch.parse(encoded())
    assert opened.codec == "none"
    assert opened.values() == TEXT
    assert "codec 'xz' cannot compress a batch" in caplog.text


def test_what_is_no_codec_keeps_the_node_from_starting():
    class Nothing:
        api = 1

        @hook
        def codec(self) -> object:
            return object()

    with (
        pytest.raises(Unusable, match=r"'nothing' has no codec: .* no method 'compress'"),
        broker_with(Nothing),
    ):
        pass


PACKAGE = """
import lzma
from hocket.plugins import hook

class Codec:
    def compress(self, raw):
        return lzma.compress(raw, preset=1)

    def decompress(self, packed, length):
        return lzma.LZMADecompressor().decompress(packed, max_length=length)

class Plugin:
    api = 1

    @hook
    def codec(self):
        return Codec()
"""


def test_an_installed_package_is_found_by_node_and_command_line(tmp_path: Path):
    site = tmp_path / "site"
    info = site / "hocket_xz-1.5.dist-info"
    info.mkdir(parents=True)
    (site / "hocket_xz.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hocket-xz\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(
        "[hocket.plugins]\nxz = hocket_xz:Plugin\n[hocket.codecs]\nxz = hocket_xz:Codec\n"
    )
    lines = tmp_path / "lines"
    lines.write_bytes(b"\n".join(TEXT))
    with (
        serving(tmp_path / "data", "--plugin", "xz", PYTHONPATH=str(site)) as broker,
        hocket.connect(broker.url) as client,
    ):
        client.create_topic("t")
        made = subprocess.run(
            [sys.executable, "-m", "hocket.cli", "produce", "t", "--file", str(lines),
             "--codec", "xz", "--server", broker.url],
            env=environment(PYTHONPATH=str(site)), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        with client.subscribe("t", start="earliest") as subscription:
            words = "codec 'xz', which is not installed here .*package 'hocket-xz'"
            with pytest.raises(CorruptData, match=words):
                subscription.receive(10)
