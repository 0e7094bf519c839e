"""The packages in `examples/plugins`, installed from their own pyproject, in a served broker."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import jwt
import pytest

import hocket
from hocket.errors import NotAllowed, Rejected
from tests.support.cli import serving

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the packages are installed, from copies: a build leaves files behind."""
    import shutil

    sources, site = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    copies = [
        shutil.copytree(EXAMPLES / name, sources / name) for name in ("schema", "signed_tokens")
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site),
         *map(str, copies)],
        check=True,
        timeout=100,
    )  # fmt: skip
    return site


def test_messages_fit_the_schema_of_their_topic(site: Path, tmp_path: Path):
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "orders.json").write_text(
        json.dumps(
            {"type": "object", "required": ["price"],
             "properties": {"price": {"type": "number", "minimum": 0, "multipleOf": 0.5}}}
        )
    )  # fmt: skip
    config = tmp_path / "hocket.toml"
    config.write_text(f'plugin = ["schema"]\n[plugins.schema]\ndirectory = "{schemas}"\n')
    with (
        serving(tmp_path / "data", "--config", str(config), PYTHONPATH=str(site)) as broker,
        hocket.connect(broker.url) as client,
    ):
        client.create_topic("orders")
        client.create_topic("notes")
        client.publish("orders", b'{"price": 3}')
        client.publish("notes", b"anything")
        for value, words in [
            (b'{"price": -1}', r"message 0, \$\.price: -1 is less than the minimum of 0"),
            (b"{}", "'price' is a required property"),
            (b"{", "message 0 is not JSON"),
            (b"[" * 100_000, "message 0 is not JSON"),
            (b'{"price": NaN}', "NaN is not a number of JSON"),
            (b'{"price": 1e400}', "message 0 cannot be checked"),
        ]:
            with pytest.raises(Rejected, match=words):
                client.publish("orders", value)
        assert client.describe("orders").partitions[0].end == 1


def key_set(**secrets: bytes) -> dict[str, object]:
    return {
        "keys": [
            {"kty": "oct", "kid": name, "alg": "HS256",
             "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode()}
            for name, secret in secrets.items()
        ]
    }  # fmt: skip


def test_users_log_in_with_signed_tokens(site: Path, tmp_path: Path):
    secret, other = b"s" * 32, b"o" * 32
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(key_set(now=secret)))
    config = tmp_path / "hocket.toml"
    config.write_text(
        f'plugin = ["signed-tokens"]\n[plugins.signed-tokens]\nkeys = "{keys}"\n'
        'audience = "hocket"\n'
    )

    def token(key: bytes | None = secret, algorithm: str = "HS256", **changes: object) -> str:
        claims = {"sub": "alice", "aud": "hocket", "exp": time.time() + 60, **changes}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, key, algorithm, headers={"kid": "now"})

    with serving(tmp_path / "data", "--config", str(config), PYTHONPATH=str(site)) as broker:
        with hocket.connect(broker.url) as client:
            client.create_user("alice", roles=["admin"])
        with hocket.connect(broker.url, token=token()) as client:
            client.create_topic("t")
        for wrong in (
            token(other),
            token(exp=time.time() - 60),
            token(exp=None),
            token(aud="another"),
            token(sub="nobody"),
            token(None, "none"),
        ):
            with pytest.raises(NotAllowed):
                hocket.connect(broker.url, token=wrong)
