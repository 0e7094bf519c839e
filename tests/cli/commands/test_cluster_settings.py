"""`serve --replication`, `cluster show` and `cluster set`, with real brokers."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import HOCKET, Hocket, fails, serving
from tests.support.processes import forked
from tests.support.threads import PATIENCE


def refused(data: Path, *options: str) -> str:
    """What a broker says that does not start."""
    ended = forked.run(
        [*HOCKET, "serve", "--listen", "127.0.0.1:0", "--data", str(data), *options],
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    return ended.stderr


def test_a_default_from_the_founding_to_a_change_of_it(tmp_path: Path):
    data = tmp_path / "one"
    with serving(data, "--replication", "2") as first:
        hocket = Hocket(first.url)
        shown = hocket("cluster", "show", "--json").json()
        assert (shown["replication"], shown["nodes"], shown["successors"]) == (2, 1, 8)
        assert (
            "replication  2, of topics that are made without saying so\n"
            in hocket("cluster", "show").text()
        )
        # The second node is still to come: who does not say so makes no topic meanwhile.
        fails(hocket("topic", "create", "t"), 1, "2 replicas need 2 nodes, and there is 1")
        hocket("topic", "create", "single", "--replication", "1").text()
        fails(hocket("cluster", "set", "replication", "2"), 1, "and there is 1")
        address = first.url.partition("://")[2]
        assert "has replication 2 by default" in refused(
            tmp_path / "two", "--join", address, "--replication", "3"
        )
        with serving(tmp_path / "two", "--join", address, "--replication", "2") as second:
            at_second = Hocket(second.url)
            at_second("topic", "create", "t").text()
            shown = hocket("topic", "describe", "t").text()
            assert "replication  2, the cluster's default when it was made\n" in shown
            assert "replication  1\n" in hocket("topic", "describe", "single").text()
            fails(at_second("cluster", "set", "replication", "3"), 1, "3 nodes, and there are 2")
            at_second("cluster", "set", "replication", "1").text()
            assert at_second("cluster", "show", "--json").json()["replication"] == 1
            assert second.stop() == 0
        assert first.stop() == 0
    assert "has replication 1 by default, and --replication 3" in refused(
        data, "--replication", "3"
    )
    for repeated in ("1", "2"):  # what holds, or what the cluster was founded with
        with serving(data, "--replication", repeated) as again:
            assert Hocket(again.url)("cluster", "show", "--json").json()["replication"] == 1
            assert again.stop() == 0


def test_what_cannot_be_set_is_a_mistake_of_the_command(tmp_path: Path):
    hocket = Hocket("hocket://127.0.0.1:1")
    fails(hocket("cluster", "set", "retention", "3"), 2, "'retention' is not 'replication'")
    fails(hocket("cluster", "set", "replication", "8"), 2, "1<=x<=7")
    fails(hocket("serve", "--replication", "0", "--data", str(tmp_path)), 2, "1<=x<=7")
