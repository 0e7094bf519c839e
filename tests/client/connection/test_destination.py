"""Where a client goes when nobody told it: what the environment says, and whose fault an error is.

Both `hocket.connect` and `hocket.aio.connect` are asked, for what they hand on and what they raise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hocket
from hocket import environment, frames
from hocket.client.connection.destination import destination
from hocket.errors import BadName, NotAllowed, OutOfRange, WrongType
from tests.support.certificates import made
from tests.support.client.sockets import ScriptedServer, usual
from tests.support.threads import run


class Blocking:
    @staticmethod
    def connect(*arguments, **options):
        with hocket.connect(*arguments, **options) as client:
            return repr(client)


class Asyncio:
    @staticmethod
    def connect(*arguments, **options):
        async def main():
            async with hocket.aio.connect(*arguments, **options) as client:
                return repr(client)

        return run(main())


both = pytest.mark.parametrize("style", [Blocking, Asyncio])


@pytest.fixture
def variables(monkeypatch):
    def set_variables(**values):
        for name in environment.NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(f"HOCKET_{name}", value)

    set_variables()
    return set_variables


def going(url=None, *, token=None, tls_ca=None, tls_cert=None, tls_key=None):
    return destination(url, token, tls_ca, tls_cert, tls_key)


@both
def test_nothing_given_takes_the_server_and_the_token_of_the_environment(style, variables):
    with ScriptedServer() as server:
        variables(SERVER=f" 127.0.0.1:{server.port}\n", TOKEN=" secret\n")
        assert server.url in style.connect()
        assert server.received[0].token == "secret"


@both
def test_what_is_given_wins(style, variables):
    with ScriptedServer() as server:
        variables(SERVER="nowhere.invalid:1", TOKEN="secret")
        style.connect(server.url, token="mine")
        style.connect(url=f"127.0.0.1:{server.port}", token="")
        hellos = [each for each in server.received if isinstance(each, frames.Hello)]
        assert [each.token for each in hellos] == ["mine", ""]


@pytest.mark.parametrize("values", [{}, {"SERVER": "", "TOKEN": " ", "TLS_CA": ""}])
def test_without_variables_it_is_the_port_of_this_machine(variables, values):
    variables(**values)
    found = going()
    assert str(found.target) == "hocket://127.0.0.1:4150" == environment.SERVER_DEFAULT
    assert found.token == ""
    assert found.context is None


@both
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("http://localhost", BadName, "HOCKET_SERVER: a broker's URL looks like"),
        ("a b", BadName, "HOCKET_SERVER: 'a b' is not the name of a host"),
        ("a:0", OutOfRange, "HOCKET_SERVER: a port is a number from 1 to 65535"),
        ("me:secret@a", BadName, "HOCKET_SERVER: a broker's URL names hosts only"),
    ],
)
def test_a_bad_server_is_the_variables_fault(style, variables, value, error, words):
    variables(SERVER=value)
    with pytest.raises(error) as caught:
        style.connect()
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(error) as caught:
        style.connect(value)
    assert "HOCKET_SERVER" not in str(caught.value)


@both
def test_a_token_that_the_broker_does_not_know_is_the_variables_fault(style, variables):
    def refuse(frame, payload):
        if isinstance(frame, frames.Hello):
            yield frames.Failure(frame.request, "notAllowed", "the token is not valid")
        else:
            yield from usual(frame, payload)

    with ScriptedServer(refuse) as server:
        variables(TOKEN="old")
        with pytest.raises(NotAllowed, match=r"not valid \(the token is that of HOCKET_TOKEN\)"):
            style.connect(server.url)
        with pytest.raises(NotAllowed, match=r"not valid$"):
            style.connect(server.url, token="old")


def test_the_files_of_tls_come_from_the_environment_too(variables, tmp_path):
    certificates = made(tmp_path)
    ca = str(certificates.authority)
    alice = {
        "TLS_CERT": str(certificates.alice.certificate),
        "TLS_KEY": str(certificates.alice.key),
    }
    variables(SERVER="broker.example", TLS_CA=ca, **alice)
    found = going()
    assert str(found.target) == "hockets://broker.example:4150"  # without a scheme, TLS is meant
    assert found.context is not None
    assert going("hocket://other").context is None  # given, and without TLS: they are not for it
    assert going("other").target.tls
    # A certificate and its key are one thing, and so are a certificate and a token.
    assert going(tls_cert=alice["TLS_CERT"], tls_key=alice["TLS_KEY"]).token == ""
    variables(SERVER="broker.example", TLS_CA=ca, TLS_CERT="/no/such/file", TOKEN="secret")
    assert going(token="mine").token == "mine"
    found = going(tls_cert=alice["TLS_CERT"], tls_key=alice["TLS_KEY"])
    assert (found.token, found.token_variable) == ("", "")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"TLS_CA": "/no/such/file"}, ["HOCKET_TLS_CA='/no/such/file'"]),
        ({"TLS_CERT": "/no/such/file"}, ["HOCKET_TLS_CERT='/no/such/file' without HOCKET_TLS_KEY"]),
        ({"TLS_KEY": "x"}, ["HOCKET_TLS_KEY is given without HOCKET_TLS_CERT"]),
        ({"SERVER": "hocket://a", "TLS_CA": "x"}, ["HOCKET_TLS_CA would", "in HOCKET_SERVER"]),
    ],
)
@both
def test_bad_files_of_tls_are_the_variables_fault(style, variables, values, words):
    variables(**{"SERVER": "hockets://a", **values})
    with pytest.raises(BadName) as caught:
        style.connect()
    for word in words:
        assert word in str(caught.value)


@both
@pytest.mark.parametrize("arguments", [{"url": 1}, {"url": "a", "token": b"x"}])
def test_a_wrong_type(style, arguments, variables):
    with pytest.raises(WrongType, match="must be a str, not"):
        style.connect(**arguments)


def test_the_names_stand_in_one_place():
    source = Path(hocket.__file__).parent
    texts = {path: path.read_text() for path in source.rglob("*.py")}
    naming = {
        path.relative_to(source).as_posix()
        for path, text in texts.items()
        if any(f'"{name}"' in text for name in environment.NAMES)
    }
    assert naming == {"environment.py"}
