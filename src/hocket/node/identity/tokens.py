"""Tokens: `hocket_<user>_<secret>`, made here, shown once, and kept only as an argon2id hash.

The secret has 256 random bits, as 43 characters of URL-safe base64. Names and secrets may both hold
`_`, so a token is read from its end, where the length is known.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from hocket.model import NAME_BYTES_MAX
from hocket.node.settings import Argon2Settings

if TYPE_CHECKING:
    from argon2 import PasswordHasher

PREFIX = "hocket_"
SECRET_BYTES = 32
SECRET_LENGTH = 43
SALT_BYTES = 16


def make_token(user: str, entropy: Callable[[int], bytes]) -> str:
    secret = base64.urlsafe_b64encode(entropy(SECRET_BYTES)).decode().rstrip("=")
    return f"{PREFIX}{user}_{secret}"


def user_of(token: str) -> str | None:
    """The user that a token names; None if it cannot be one of our tokens."""
    name, separator = token[len(PREFIX) : -SECRET_LENGTH - 1], token[-SECRET_LENGTH - 1 :][:1]
    if not token.startswith(PREFIX) or separator != "_" or not 1 <= len(name) <= NAME_BYTES_MAX:
        return None
    return name


def digest_of(token: str) -> bytes:
    """A digest by which a verified token is recognised: a token has 256 random bits."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def hash_token(token: str, salt: bytes, settings: Argon2Settings) -> str:
    """The hash to keep. Slow, and takes much memory, on purpose."""
    return _hasher(settings).hash(token, salt=salt)


def is_token_of(token: str, token_hash: str | None, settings: Argon2Settings) -> bool:
    """Whether the token has this hash; as slow as `hash_token`.

    Without a hash (there is no such user) it takes as long, so that the time does not tell which
    users there are.
    """
    from argon2.exceptions import VerifyMismatchError

    hasher = _hasher(settings)
    if token_hash is None:
        hasher.hash(token, salt=bytes(SALT_BYTES))
        return False
    try:
        return hasher.verify(token_hash, token)
    except VerifyMismatchError:
        return False


def _hasher(settings: Argon2Settings) -> PasswordHasher:
    from argon2 import PasswordHasher  # here, since only brokers with users need it

    return PasswordHasher(settings.time_cost, settings.memory_cost, settings.parallelism)
