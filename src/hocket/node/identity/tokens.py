"""Tokens: `hocket_<user>_<secret>`, made here, shown once, and kept only as a SHA-256 hash.

The secret has 256 random bits, as 43 characters of URL-safe base64. Names and secrets may both hold
`_`, so a token is read from its end, where the length is known.

Nobody can guess 256 random bits, however fast a guess is; slow hashing is for what people choose.
So the hash is a plain one, and to look at a token costs nothing. Earlier versions kept argon2id
hashes. They are understood where argon2-cffi is installed, the extra `hocket[argon2]`;
`hocket user token NAME` replaces one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hocket.errors import HocketError
from hocket.model import NAME_BYTES_MAX, check_name
from hocket.node.settings import Argon2Settings

if TYPE_CHECKING:
    from argon2 import PasswordHasher

PREFIX = "hocket_"
SECRET_BYTES = 32
SECRET_LENGTH = 43
SALT_BYTES = 16
SHA256 = "$sha256$"  # how a hash of ours begins; the digest follows in hexadecimal


def make_token(user: str, entropy: Callable[[int], bytes]) -> str:
    secret = base64.urlsafe_b64encode(entropy(SECRET_BYTES)).decode().rstrip("=")
    return f"{PREFIX}{user}_{secret}"


def user_of(token: str) -> str | None:
    """The user that a token names; None if it cannot be one of our tokens."""
    name, separator = token[len(PREFIX) : -SECRET_LENGTH - 1], token[-SECRET_LENGTH - 1 :][:1]
    if not token.startswith(PREFIX) or separator != "_" or not 1 <= len(name) <= NAME_BYTES_MAX:
        return None
    return name


def is_token(text: str) -> bool:
    """Whether `make_token` could have made it. Whether it is random, nobody can tell."""
    user, secret = user_of(text), text[-SECRET_LENGTH:]
    try:
        check_name(user or "", "a user's name")
        decoded = base64.b64decode(secret + "=", altchars=b"-_", validate=True)
    except (HocketError, ValueError):
        return False
    return len(decoded) == SECRET_BYTES


def digest_of(token: str) -> bytes:
    """A digest by which a verified token is recognised: a token has 256 random bits."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def hash_token(token: str) -> str:
    """The hash to keep."""
    return SHA256 + digest_of(token).hex()


def is_slow(token_hash: str) -> bool:
    """Whether the hash is of an earlier version, so that only `is_slow_token_of` can tell."""
    return not token_hash.startswith(SHA256)


def is_token_of(token: str, token_hash: str | None) -> bool:
    """Whether the token has this hash; False for an argon2id hash, and without one.

    It takes as long for those, so that the time does not tell which users there are.
    """
    return hmac.compare_digest(hash_token(token), token_hash or SHA256 + "0" * 64)


def can_verify_slow() -> bool:
    """Whether `is_slow_token_of` can be called: argon2-cffi is an extra."""
    return find_spec("argon2") is not None


def is_slow_token_of(token: str, token_hash: str | None, settings: Argon2Settings) -> bool:
    """Whether the token has this argon2id hash. Slow, and takes much memory, on purpose.

    With another hash, or without one, it takes as long, so that the time does not tell which users
    there are.
    """
    from argon2.exceptions import VerifyMismatchError

    hasher = _hasher(settings)
    if token_hash is None or not is_slow(token_hash):
        hasher.hash(token, salt=bytes(SALT_BYTES))
        return False
    try:
        return hasher.verify(token_hash, token)
    except VerifyMismatchError:
        return False


def _hasher(settings: Argon2Settings) -> PasswordHasher:
    from argon2 import PasswordHasher  # here, since only brokers with users need it

    return PasswordHasher(settings.time_cost, settings.memory_cost, settings.parallelism)
