"""Where a client goes, as whom, and whom it trusts there: what was given, else the environment.

Rule 1: an argument wins over its variable, and an error names the one that was at fault.
Rule 2: who somebody is, is one thing: if a token or a certificate is given, neither HOCKET_TOKEN
nor HOCKET_TLS_CERT is looked at. A key belongs to its certificate, and is never taken from
elsewhere.
Rule 3: variables of TLS are for brokers with TLS. A URL without TLS that was given leaves them
alone; next to a HOCKET_SERVER without TLS they are a mistake, which is said.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hocket import environment
from hocket.client.connection.address import Target, parse_url
from hocket.client.connection.tls import ARGUMENTS, Path, client_context
from hocket.errors import BadName, NotAllowed, OutOfRange, WrongType
from hocket.remote.reach import Reach


class Destination(NamedTuple):
    target: Target
    context: ssl.SSLContext | None
    token: str
    token_variable: str  # the variable that the token is from; empty: it was given, or is none
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def reach(self, name: str, timeout: float) -> Reach:
        """The same for the names of brokers in other processes."""
        return Reach(
            self.target.addresses, self.context, self.token, self.tls_cert, self.tls_key, name,
            timeout=timeout,
        )  # fmt: skip

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Name the variable if the broker does not like what it holds."""
        try:
            yield
        except NotAllowed as error:
            if not self.token_variable:
                raise
            raise type(error)(f"{error} (the token is that of {self.token_variable})") from None


def destination(
    url: str | None,
    token: str | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> Destination:
    """Raises BadName, OutOfRange or WrongType for what cannot be used; nothing was opened then."""
    names = ARGUMENTS
    token_variable = ""
    names_nobody = token is None and tls_cert is None and tls_key is None
    token = _checked_token(token)
    given_tls = tls_ca is not None or tls_cert is not None or tls_key is not None
    if tls_ca is None and (tls_ca := environment.value(environment.TLS_CA)) is not None:
        names = names._replace(ca=environment.TLS_CA)
    if names_nobody:
        if found := environment.value(environment.TOKEN):
            token, token_variable = found, environment.TOKEN
        tls_cert = environment.value(environment.TLS_CERT)
        tls_key = environment.value(environment.TLS_KEY)
        names = names._replace(cert=environment.TLS_CERT, key=environment.TLS_KEY)
    wants_tls = tls_ca is not None or tls_cert is not None or tls_key is not None
    target = _target(url, wants_tls)
    context = None
    if target.tls:
        context = client_context(tls_ca, tls_cert, tls_key, names)
    elif given_tls:
        raise BadName(
            f"{target} is without TLS, so tls_ca, tls_cert and tls_key mean nothing; "
            "write hockets://"
        )
    elif wants_tls and url is None:
        named = [name for name in environment.NAMES[2:] if environment.value(name)]
        raise BadName(
            f"{' and '.join(named)} would mean nothing, since {target} is without TLS; write "
            f"hockets:// in {environment.SERVER}, or unset what is not for it"
        )
    return Destination(target, context, token or "", token_variable, tls_cert, tls_key)


def _checked_token(token: object) -> str | None:
    if token is not None and not isinstance(token, str):
        raise WrongType(f"a token must be a str, not {type(token).__name__}")
    return token


def _target(url: str | None, wants_tls: bool) -> Target:
    if url is not None:
        return parse_url(url, tls=wants_tls)
    found = environment.value(environment.SERVER)
    try:
        return parse_url(found or environment.SERVER_DEFAULT, tls=wants_tls)
    except (BadName, OutOfRange) as error:
        raise type(error)(f"{environment.SERVER}: {error}") from None
