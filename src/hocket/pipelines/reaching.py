"""How a pipeline's files reach the broker: `hocket pipeline` sets variables, `broker()` reads them.

The variables are those of the clients, so that a directory works with Spark's own `spark-pipelines`
too. A token is handed on only as the path of a file, since Spark shows options in several places.
"""

from __future__ import annotations

import os
from pathlib import Path

from hocket import environment
from hocket.errors import NotAllowed

TOKEN_FILE = "HOCKET_TOKEN_FILE"
_OPTIONS = {
    TOKEN_FILE: "tokenFile",
    environment.TLS_CA: "tlsCa",
    environment.TLS_CERT: "tlsCert",
    environment.TLS_KEY: "tlsKey",
}


def broker() -> dict[str, str]:
    """The options of `format("hocket")` that say where the broker is, and as whom to go there."""
    found = {"servers": environment.value(environment.SERVER) or environment.SERVER_DEFAULT}
    for variable, option in _OPTIONS.items():
        if value := environment.value(variable):
            found[option] = value
    if environment.value(environment.TOKEN) and "tokenFile" not in found:
        raise NotAllowed(
            f"a pipeline takes its token from a file, since Spark shows options: put it into one, "
            f"and name the file in {TOKEN_FILE} (--token-file) instead of {environment.TOKEN}"
        )
    return found


def tell(
    *,
    server: str,
    token_file: Path | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Set the variables for the files of a pipeline that runs in this process."""
    said = {
        environment.SERVER: server,
        TOKEN_FILE: token_file,
        environment.TLS_CA: tls_ca,
        environment.TLS_CERT: tls_cert,
        environment.TLS_KEY: tls_key,
    }
    for variable, value in said.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = str(value.resolve() if isinstance(value, Path) else value)
