"""The pages that newcomers type after: every command is run, and brings what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.console import Page, alike

ROOT = Path(__file__).parents[2]
PAGES = {"docs/guide/first_hour.md": 30, "README.md": 5}  # and how many commands are run at least


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_comes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    page = Page(ROOT / name, tmp_path, monkeypatch)
    page.run()
    assert page.commands >= PAGES[name]


LIES = {
    "what is printed": ("```console\n$ hocket --version\nhocket 0.0.0\n```", "--- came:"),
    "what is missing": ("```console\n$ hocket --version\n```", "--- came:"),
    "a command that fails": ("```console\n$ hocket prodcue\n```", "Did you mean 'produce'"),
    "a block without a command": ("```console\nhocket 0.1.0\n```", "begins with a command"),
    "a file that nobody runs": ("```python\n# shop.py\n1 / 0\n```", "never run: {'shop.py'"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_page_that_is_wrong_is_found(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, said = LIES[lie]
    monkeypatch.delenv("HOCKET_REWRITE", raising=False)
    page = tmp_path / "page.md"
    page.write_text(text + "\n")
    with pytest.raises(AssertionError) as failure:
        Page(page, tmp_path, monkeypatch).run()
    assert said in str(failure.value)


def test_a_page_is_written_anew_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_REWRITE", "1")
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n```console\n$ echo 5 ms\n6 ms\n$ echo one\ntwo\n```\n\nAfter.\n")
    Page(page, tmp_path, monkeypatch).run()
    assert page.read_text() == (
        "Before.\n\n```console\n$ echo 5 ms\n6 ms\n$ echo one\none\n```\n\nAfter.\n"
    )


def test_only_what_varies_may_differ() -> None:
    said = "hocket: produced 3 messages (55 B) to orders in 40 ms: 76 messages/s, 1.4 KiB/s"
    assert alike(said, said.replace("40 ms: 76", "1.2 s: 2.0 M").replace("1.4 KiB", "900 B"))
    assert not alike(said, said.replace("3 messages", "4 messages"))
    assert not alike(said, said.replace("55 B", "54 B"))
    assert not alike("orders/0/0\n", "orders/0/1\n")
