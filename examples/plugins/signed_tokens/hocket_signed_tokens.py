"""Users log in with JSON Web Tokens, whose signatures are checked with keys from a file.

The subject of a token (`sub`) is the name of a user of the broker, who has the rights of the roles
given there. A token must say when it ends (`exp`). The file is a JSON Web Key Set. A token that
names its key (`kid`) is checked with that one, and with all of them otherwise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import jwt

from hocket.plugins import hook

# What is wrong with numbers and nesting is not told as an error of the library by all its versions.
NOT_VALID = (jwt.InvalidTokenError, ValueError, ArithmeticError, RecursionError)
TOKEN_CHARS_MAX = 16_384  # a longer one is not read: that would take the node's thread


class SignedTokens:
    api = 1
    policy = "closed"

    @dataclass
    class Settings:
        keys: Path
        audience: str | None = None
        issuer: str | None = None

    def __init__(self, settings: Settings) -> None:
        self._keys = jwt.PyJWKSet.from_dict(json.loads(settings.keys.read_text())).keys
        self._settings = settings

    @hook
    def authenticate(self, token: str) -> str | None:
        if len(token) > TOKEN_CHARS_MAX:
            return None
        try:
            named = jwt.get_unverified_header(token).get("kid")
        except NOT_VALID:
            return None  # it is a token of another kind
        for key in self._keys:
            if named in (None, key.key_id):
                try:
                    claims = jwt.decode(
                        token,
                        key,
                        # The key says how it is used, never the token: a token could choose badly.
                        algorithms=[key.algorithm_name],
                        audience=self._settings.audience,
                        issuer=self._settings.issuer,
                        options={"require": ["exp", "sub"]},
                    )
                except NOT_VALID:
                    continue
                return str(claims["sub"])
        return None
