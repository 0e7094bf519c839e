"""`hocket user|role|grant|can` against a broker process of their own, with access control on."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cli import token_file
from hocket.cli.commands import user as user_commands
from tests.support.cli import Hocket, Outcome, Serving, fails, serving

ONCE = "hocket: this token is shown once; keep it in a file (--token-file) or in HOCKET_TOKEN\n"


class Guarded:
    """A broker, its first admin `ann`, and the command line as any user."""

    def __init__(self, broker: Serving, folder: Path, log: Path) -> None:
        self.broker = broker
        self.log = log
        self.tokens: dict[str, str] = {}
        self._folder = folder
        self._hocket = Hocket(broker.url)

    def anonymous(self, *args: str) -> Outcome:
        return self._hocket.run(*args)

    def process(self, user: str, *args: str) -> Outcome:
        """In a process of its own, as a user runs it."""
        return self._hocket.run("--token-file", str(self.file(user)), *args)

    def user(self, user: str, *args: str) -> Outcome:
        """Within this process, which is quick."""
        return self._hocket("--token-file", str(self.file(user)), *args)

    def __call__(self, *args: str) -> Outcome:
        return self.user("ann", *args)

    def file(self, user: str) -> Path:
        return self._folder / f"{user}.token"

    def keep(self, user: str, outcome: Outcome) -> str:
        assert (outcome.code, outcome.stderr) == (0, ONCE), outcome
        token = outcome.stdout.decode()
        assert token.endswith("\n")
        self.file(user).write_text(token)
        self.tokens[user] = token.strip()
        return token.strip()

    def create(self, user: str, *roles: str) -> str:
        options = [word for role in roles for word in ("--role", role)]
        return self.keep(user, self("user", "create", user, *options))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    with open(folder / "log", "wb") as log, serving(folder / "data", log=log) as broker:
        found = Guarded(broker, folder, folder / "log")
        # What stands here is the way in: off at first, on from the first user.
        off = found.anonymous("user", "list")
        assert off.stderr == (
            "hocket: there is no user: access control is off, and everybody may do everything\n"
        )
        assert off.stdout == b"USER  ROLES\n"
        fails(found.anonymous("user", "create", "ann"), 4, "must have the role 'admin'")
        token = found.keep("ann", found.anonymous("user", "create", "ann", "--role", "admin"))
        assert token.startswith("hocket_ann_")
        fails(found.anonymous("topic", "list"), 4, "asks for a token")
        for name in ("orders", "salaries"):
            assert found("topic", "create", name).code == 0
        assert found("role", "create", "worker").text() == ""
        assert found("grant", "add", "worker", "publish", "ord*").text() == ""
        assert found("grant", "add", "worker", "subscribe", "orders", "--index", "b*").text() == ""
        found.create("bob", "worker")
        yield found
        assert broker.stop() == 0


def test_a_user_does_what_is_granted_and_nothing_else(guarded: Guarded):
    assert guarded.process("bob", "publish", "orders", "hello").text() == "orders/0/0\n"
    assert guarded.user("bob", "consume", "orders", "--index", "billing").text() == "hello\n"
    missing = "does not grant subscribe on topic 'orders', index 'audit'"
    fails(guarded.user("bob", "consume", "orders", "--index", "audit"), 4, missing)
    fails(guarded.process("bob", "publish", "salaries", "x"), 4, "publish on topic 'salaries'")
    fails(guarded.user("bob", "publish", "nowhere", "x"), 4, "publish on topic 'nowhere'")
    fails(guarded.user("bob", "topic", "create", "x"), 4, "create on topic 'x'")
    fails(guarded.user("bob", "user", "list"), 4, "admin on everything")
    names = [topic["topic"] for topic in guarded.user("bob", "topic", "list", "--json").json()]
    assert names == ["orders"]


def test_lists_for_people_and_for_programs(guarded: Guarded):
    lines = guarded("user", "list").text().splitlines()
    assert lines[0].split() == ["USER", "ROLES"]
    assert ["bob", "worker"] in [line.split() for line in lines]
    assert {"user": "ann", "roles": ["admin"]} in guarded("user", "list", "--json").json()
    lines = guarded("role", "list").text().splitlines()
    assert lines[0].split() == ["ROLE", "GRANTS", "USERS"]
    assert ["admin", "1", "ann"] in [line.split() for line in lines]
    roles = {each["role"]: each for each in guarded("role", "list", "--json").json()}
    assert roles["worker"]["users"] == ["bob"]
    assert roles["worker"]["grants"][0] == {"action": "publish", "topic": "ord*", "index": "*"}
    assert [line.split() for line in guarded("grant", "list", "worker").text().splitlines()] == [
        ["ROLE", "ACTION", "TOPICS", "INDEXES"],
        ["worker", "publish", "ord*", "*"],
        ["worker", "subscribe", "orders", "b*"],
    ]
    everything = guarded("grant", "list", "--json").json()
    assert {"role": "admin", "action": "admin", "topic": "*", "index": "*"} in everything
    fails(guarded("grant", "list", "ghost"), 3, "no role 'ghost'; there are: admin,")


def test_a_token_is_written_to_a_file_that_only_its_owner_can_read(
    guarded: Guarded, tmp_path: Path
):
    file = tmp_path / "eve.token"
    made = guarded("user", "create", "eve", "--role", "worker", "--out", str(file))
    assert (made.code, made.stdout) == (0, b"")
    said = f"the token of 'eve' is in '{file}'; use it with: hocket --token-file {file}"
    assert made.stderr == f"hocket: {said}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    first = file.read_text()
    assert first.startswith("hocket_eve_")
    assert guarded.anonymous("--token-file", str(file), "topic", "list", "--names").code == 0

    fails(guarded("user", "token", "eve", "--out", str(file)), 1, "exists", "--force")
    assert file.read_text() == first
    fails(guarded("user", "token", "nobody", "--out", str(file), "--force"), 3, "nobody")
    assert file.read_text() == first
    file.chmod(0o644)
    assert guarded("user", "token", "eve", "--out", str(file), "--force").code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() != first
    assert list(tmp_path.iterdir()) == [file]
    assert guarded("user", "delete", "eve", "--yes").code == 0


def test_no_user_is_made_if_its_token_cannot_be_written(guarded: Guarded, tmp_path: Path):
    there = tmp_path / "there"
    there.write_text("mine")
    create = ("user", "create", "mallory", "--role", "worker")
    fails(guarded(*create, "--out", str(there)), 1, "exists", "nothing was done", "--force")
    fails(guarded(*create, "--out", str(tmp_path / "no" / "file")), 1, "nothing was done")
    fails(guarded(*create, "--out", str(tmp_path / "no" / "file"), "--force"), 1, "nothing was")
    fails(guarded(*create, "--out", str(tmp_path)), 2, "directory")
    fails(guarded(*create, "--force"), 2, "--out")
    users = [each["user"] for each in guarded("user", "list", "--json").json()]
    assert "mallory" not in users
    fails(guarded("user", "create", "bob", "--out", str(tmp_path / "bob")), 1, "a user 'bob'")
    assert [each.name for each in tmp_path.iterdir()] == ["there"]
    assert there.read_text() == "mine"


def test_a_disk_without_room_for_the_token_is_found_out_first(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(token_file.os, "pwrite", full)
    file = tmp_path / "file"
    fails(guarded("user", "create", "mallory", "--out", str(file)), 1, "No space left on device")
    assert "mallory" not in guarded("user", "list").text()
    assert not file.exists()


def test_can_says_yes_or_no_and_why(guarded: Guarded):
    assert guarded("can", "bob", "publish", "orders").text() == (
        "yes: the role 'worker' grants publish on topic 'ord*'\n"
    )
    no = guarded.process("bob", "can", "bob", "subscribe", "orders")
    assert (no.code, no.stderr) == (4, "")
    assert no.stdout.decode().startswith("no: the only role of user 'bob', 'worker', does not")
    assert guarded("can", "bob", "subscribe", "orders", "--index", "billing").code == 0
    assert guarded("can", "ann", "admin", "*", "--json").json() == {
        "allowed": True,
        "reason": "the role 'admin' grants admin on everything",
    }
    refused = guarded("can", "bob", "delete", "orders", "--json")
    assert refused.code == 4
    assert refused.json()["allowed"] is False
    fails(guarded("can", "ghost", "publish", "orders"), 3, "no user 'ghost'")
    fails(guarded.user("bob", "can", "ann", "publish", "orders"), 4, "admin on everything")
    fails(guarded("can", "bob", "fly", "orders"), 2, "'fly' is not one of 'publish'")
    fails(guarded("can", "bob", "publish", "a b"), 2, "the name of the topic")


def test_a_grant_that_matches_nothing_yet_is_given_and_said_so(guarded: Guarded):
    guarded("role", "create", "early")
    outcome = guarded("grant", "add", "early", "publish", "later-*")
    assert (outcome.code, outcome.stdout) == (0, b"")
    assert outcome.stderr == "hocket: granted; no topic matches 'later-*' yet\n"
    assert guarded("grant", "add", "early", "create", "later-*").text() == ""
    assert guarded("grant", "add", "early", "alter").text() == ""
    assert guarded("grant", "add", "early", "alter", "*laries").text() == ""
    assert guarded("grant", "remove", "early", "publish", "later-*").text() == ""
    fails(guarded("grant", "remove", "early", "publish", "later-*"), 2, "has no grant publish")
    assert guarded("role", "delete", "early", "--yes").text() == ""


def test_roles_are_set_and_taken(guarded: Guarded):
    guarded.create("cid")
    fails(guarded.user("cid", "publish", "orders", "x"), 4, "user 'cid' has no roles")
    assert guarded("user", "roles", "cid", "worker").text() == ""
    assert guarded.user("cid", "publish", "orders", "x").code == 0
    assert guarded("user", "roles", "cid", "--none").text() == ""
    fails(guarded.user("cid", "publish", "orders", "x"), 4, "has no roles")
    fails(guarded("user", "roles", "cid"), 2, "--none")
    fails(guarded("user", "roles", "cid", "ghost"), 3, "no role 'ghost'")
    fails(guarded("user", "delete", "cid"), 2, "add --yes")
    assert guarded("user", "delete", "cid", "--yes").text() == ""
    fails(guarded.user("cid", "topic", "list"), 4, "the token is not that of a user")


def test_a_new_token_voids_the_old(guarded: Guarded):
    old = guarded.create("dan", "worker")
    new = guarded.keep("dan", guarded("user", "token", "dan"))
    assert new != old
    assert guarded.user("dan", "topic", "list").code == 0
    guarded.file("dan").write_text(old)
    fails(guarded.user("dan", "topic", "list"), 4, "the token is not that of a user")
    fails(guarded("user", "token", "ghost"), 3, "no user 'ghost'")
    guarded("user", "delete", "dan", "--yes")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["user", "create", "bob"], 1, "a user 'bob' already"),
        (["user", "create", "e e"], 2, "the name of the user"),
        (["user", "create", "eve", "--role", "ghost"], 3, "no role 'ghost'"),
        (["user", "delete", "ann", "--yes"], 4, "the last one with the role 'admin'"),
        (["user", "roles", "ann", "worker"], 4, "the last one with the role 'admin'"),
        (["role", "create", "worker"], 1, "a role 'worker' already"),
        (["role", "delete", "admin", "--yes"], 4, "built in"),
        (["role", "delete", "ghost", "--yes"], 3, "no role 'ghost'"),
        (["grant", "add", "admin", "publish"], 4, "built in"),
        (["grant", "add", "ghost", "publish"], 3, "no role 'ghost'"),
        (["grant", "add", "worker", "fly"], 2, "'fly' is not one of"),
        (["grant", "add", "worker", "publish", "a b"], 2, "a pattern must be"),
        (["grant", "add", "worker", "publish", "a", "--index", "b"], 2, "no index"),
    ],
)
def test_mistakes_are_told_and_nothing_is_changed(guarded: Guarded, args, code, words):
    before = guarded("role", "list", "--json").json(), guarded("user", "list", "--json").json()
    fails(guarded(*args), code, words)
    after = guarded("role", "list", "--json").json(), guarded("user", "list", "--json").json()
    assert before == after


def test_a_revoke_ends_a_consumer_that_runs(guarded: Guarded):
    guarded("topic", "create", "stream")
    guarded("role", "create", "reader")
    guarded("grant", "add", "reader", "subscribe", "stream")
    guarded.create("rea", "reader")
    guarded("publish", "stream", "one")
    hocket = Hocket(guarded.broker.url)
    with hocket.process(
        "--token-file", str(guarded.file("rea")), "consume", "stream", "--index", "i", "--follow"
    ) as consumer:
        assert isinstance(consumer.stdout, io.BufferedReader)
        assert consumer.stdout.readline() == b"one\n"
        assert guarded("grant", "remove", "reader", "subscribe", "stream").code == 0
        _, stderr = consumer.communicate(timeout=30)
    assert consumer.returncode == 4
    assert b"does not grant subscribe on topic 'stream'" in stderr


def test_the_log_has_every_change_and_no_secret(guarded: Guarded):
    fails(guarded.user("bob", "topic", "delete", "orders", "--yes"), 4, "delete on topic 'orders'")
    text = guarded.log.read_text()
    assert "hocket.audit: changed: user='ann' address=127.0.0.1 createUser 'bob'" in text
    assert "hocket.audit: denied: user='bob' address=127.0.0.1 DeleteTopic topic='orders'" in text
    for token in guarded.tokens.values():
        assert token[-43:] not in text
    assert "argon2" not in text


def test_names_are_completed(guarded: Guarded):
    from click.testing import CliRunner

    from hocket.cli.program import program

    def completed(words: str) -> list[str]:
        result = CliRunner(
            env={
                "_HOCKET_COMPLETE": "bash_complete",
                "COMP_WORDS": f"hocket {words}",
                "COMP_CWORD": str(len(words.split(" "))),
                "HOCKET_SERVER": guarded.broker.url,
                "HOCKET_TOKEN": guarded.tokens["ann"],
            }
        ).invoke(program, [])
        return [line.split(",", 1)[1] for line in result.stdout.splitlines()]

    assert completed("user delete b") == ["bob"]
    assert completed("grant add wo") == ["worker"]
    assert completed("grant add worker pub") == ["publish"]


def test_a_token_that_could_not_be_written_can_be_had_anew(monkeypatch: pytest.MonkeyPatch):
    def full(_text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(user_commands.click, "echo", full)
    with pytest.raises(OSError, match="No space") as raised:
        user_commands._hand_over("secret", "bob", None, None)
    assert raised.value.__notes__ == [
        "the token is lost; make a new one with: hocket user token bob"
    ]


# --- the audit log -------------------------------------------------------------------------------


def test_an_admin_reads_what_was_denied_and_changed(guarded):
    guarded.create("eve")
    assert guarded.user("eve", "topic", "create", "hers").code == 4
    shown = guarded("audit")
    assert shown.code == 0
    lines = shown.stdout.decode().splitlines()
    for who, what in (
        ("changed: user='ann'", "createUser 'eve'"), ("denied: user='eve'", "topic='hers'")
    ):  # fmt: skip
        assert any(who in line and what in line for line in lines)
    assert guarded.tokens["eve"] not in shown.stdout.decode()
    found = json.loads(guarded("audit", "--since", "1h", "--json").stdout)
    assert (len(found["records"]), found["silent"]) == (len(lines), [])
    assert set(found["records"][0]) == {"time", "node", "text"}
    assert guarded("audit", "--since", "2999-01-01T00:00:00Z").stdout == b""
    assert guarded.user("eve", "audit").code == 4
    assert "neither a time" in guarded("audit", "--since", "yesterday").stderr
