"""Scale runs in small: their chapters, their truth, their text."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from hocket.cli.commands.sim_ring import CHAPTER_NAMES, ring
from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import RingSettings
from hocket.sim.scale import balance, fanout_run, figures, picture, ring_run, trouble_run
from hocket.sim.scale.asking import Asking, ask_for
from hocket.sim.scale.audience import Audience
from hocket.sim.scale.chapters import CHAPTERS
from hocket.sim.scale.figures import Chapter, Options, Table
from hocket.sim.scale.plots import NoPlotting, plot
from hocket.sim.scale.statistics import histogram, max_to_mean, mean, percentile
from hocket.sim.scale.wires import Delays, Wires
from hocket.sim.scale.world import World, fingers_only
from hocket.sim.scheduler import Scheduler

QUICK = RingSettings(
    stabilize_us=1_000_000,
    finger_us=3_000_000,
    beacon_us=1_000_000,
    beacon_stale_us=6_000_000,
    rejoin_jitter_us=1_000_000,
)


# --- numbers and text -----------------------------------------------------------------------------


def test_statistics() -> None:
    assert mean([]) == 0
    assert percentile([], 0.5) == 0
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7], 0.0) == 7
    assert max_to_mean([1, 1, 4]) == 2
    assert max_to_mean([0, 0]) == 0
    assert histogram([2, 1, 2, 2]) == {1: 0.25, 2: 0.75}


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert figures.share(1.0) == "100 %"
    assert figures.share(0.999999) == "99.99 %"
    assert figures.share(0.5) == "50 %"


TABLE = Table("hops", ["nodes>", "name"], [[1000, "a"], [20, None], [0.5, "ccc"]])


def test_tables_as_text_and_as_markdown() -> None:
    assert figures.text(TABLE) == "nodes  name\n1,000  a\n   20  -\n 0.50  ccc"
    assert figures.markdown(TABLE).splitlines() == [
        "| nodes | name |",
        "| ---: | --- |",
        "| 1,000 | a |",
        "| 20 | - |",
        "| 0.50 | ccc |",
    ]


def test_a_document_is_filled_at_its_marks_only() -> None:
    document = "before\n<!-- table hops -->\nold\n<!-- end -->\nafter <!-- end -->\n"
    filled = figures.fill(document, [TABLE])
    assert filled.startswith("before\n<!-- table hops -->\n\n| nodes | name |\n")
    assert filled.endswith("| 0.50 | ccc |\n\n<!-- end -->\nafter <!-- end -->\n")
    assert figures.fill(filled, [TABLE]) == filled
    with pytest.raises(figures.NoPlaceForTable, match="'hops'"):
        figures.fill("nothing", [TABLE])


def test_one_part_is_written_without_losing_the_others(tmp_path) -> None:
    (tmp_path / "scale.md").write_text(
        "<!-- table hops -->\n<!-- end -->\n<!-- table more -->\n<!-- end -->\n"
    )
    other = Chapter("second", [Table("more", ["x"], [["y"]])], {"points": [1]}, {"seed": 7})
    figures.write(tmp_path, [Chapter("first", [TABLE]), other])
    newer = Table("hops", ["nodes>", "name"], [[30, "newer"]])
    together = figures.write(tmp_path, [Chapter("first", [newer])])
    assert together == [Chapter("first", [newer]), other]
    text = (tmp_path / "scale.md").read_text()
    assert "| 30 | newer |" in text
    assert "| y |" in text
    assert "1,000" not in text


def test_the_page_has_a_place_for_every_table_of_every_part() -> None:
    directory = Path(__file__).parents[2] / "docs/internals"
    page = (directory / "scale.md").read_text()
    data = json.loads((directory / "scale.json").read_text())
    chapters = [Chapter.from_json(each) for each in data]
    assert sorted(chapter.name for chapter in chapters) == sorted(CHAPTERS)
    tables = [table for chapter in chapters for table in chapter.tables]
    assert figures.fill(page, tables) == page  # nobody has changed a number by hand


# --- the world ------------------------------------------------------------------------------------


def test_what_is_sent_to_the_dead_or_across_a_cut_is_lost() -> None:
    scheduler = Scheduler("wires")
    wires = Wires(scheduler, Delays())
    one, two = Contact(1, "one", 1, "one"), Contact(2, "two", 3, "two")
    got: list[tuple[str, int, object]] = []
    wires.attach("one", lambda *_what: None)
    wires.attach("two", lambda sender, life, what: got.append((sender.node, life, what)))
    wires.send(one, two, "first")
    scheduler.run_for(1_000_000)
    wires.send(one, Contact(3, "never", 1, "never"), "nowhere")
    wires.cut({"one": True, "two": False})
    wires.send(one, two, "across")
    scheduler.run_for(1_000_000)
    wires.heal()
    wires.send(one, two, "second")
    wires.send(one, two, 3)
    scheduler.run_for(1_000_000)
    wires.send(one, two, "late")
    wires.detach("two")
    scheduler.run_for(1_000_000)
    assert sorted(map(str, got)) == sorted(
        map(str, [("one", 3, "first"), ("one", 3, "second"), ("one", 3, 3)])
    )
    assert wires.sent == {"str": 5, "int": 1}


def test_a_ring_begins_ideal_and_the_truth_knows_when_it_is_not() -> None:
    with World("ideal") as world:
        world.build(40)
        assert (world.astray(), world.unsettled()) == (0, 0)
        contacts = world.contacts
        assert world.owner(contacts[5].position) == contacts[5]
        assert world.owner(contacts[5].position + 1) == contacts[6]
        assert world.owner(contacts[-1].position + 1) == contacts[0]
        [victim] = world.victims(1, "victims")
        world.crash(victim)
        assert world.astray() == 1
        assert world.unsettled() == 9  # eight had it in their lists, one as its predecessor


def test_every_lookup_of_a_ring_at_rest_is_right_and_short() -> None:
    with World("lookups", fingers_only()) as world:
        world.build(200)
        answers = ask_for(world, 150, 1)
    assert answers.asked > 100
    assert answers.right == answers.asked == len(answers.hops)
    assert answers.mean_hops == pytest.approx(ring_run.formula_hops(200), abs=1.0)
    assert answers.probes >= sum(answers.hops)
    assert answers.wasted == 0


def test_positions_chosen_of_16_leave_arcs_more_even_than_hashes() -> None:
    longest = {}
    for chosen in (True, False):
        with World("arcs", chosen=chosen) as world:
            world.build(200)
            places = [contact.position for contact in world.contacts]
        arcs = [after - before for before, after in pairwise(places)]
        longest[chosen] = max_to_mean(arcs)
    assert longest[True] < 3 < longest[False]


def test_a_node_that_joins_owns_keys_and_a_dead_owner_is_told_from_a_wrong_one() -> None:
    with World("joins", QUICK) as world:
        world.build(30)
        newcomer = world.join()
        world.run_seconds(10)
        assert newcomer.core.me in world.contacts
        assert world.unsettled() == 0
        asking = Asking(world, 0.001)
        before = world.owner(newcomer.core.me.position)
        assert before == newcomer.core.me
        world.crash(before.address)
        asker = world.contacts[0].address
        asking.ask(asker, before.position)  # whoever answers thinks that it lives
        world.run_seconds(10)
        early = asking.turn_over()
        assert (early.right, early.dead_first, early.asked) == (1, 1, 1)
        asking.ask(asker, before.position)
        world.run_seconds(10)
        asking.stop()
        late = asking.answers
        assert (late.right, late.dead_first, late.asked) == (1, 0, 1)


def test_the_way_back_from_crashes_and_from_a_cut() -> None:
    for trouble in ("crash", "cut"):
        with World(trouble, QUICK) as world:
            world.build(30)
            if trouble == "crash":
                for address in world.victims(7, "victims"):
                    world.crash(address)
            else:
                far = world.victims(15, "halves")
                world.wires.cut({address: address in far for address in world.members})
                world.run_seconds(20)
                world.wires.heal()
            assert world.unsettled()
            way = trouble_run.way_back(world, lookups_per_second=5)
        assert way.in_order_seconds is not None
        assert way.ideal_seconds is not None
        assert 0 < way.in_order_seconds <= way.ideal_seconds
        assert way.astray[-1][1] == 0
        assert way.right[-1][1] > 0.9


# --- chapters -------------------------------------------------------------------------------------


def cells(table: Table, column: str) -> list[object]:
    place = table.columns.index(column)
    return [row[place] for row in table.rows]


SMALL = Options(nodes=60, seconds=10, seed=3)


def test_maintenance_is_what_the_formulas_say() -> None:
    chapter = ring_run.maintenance(replace(SMALL, seconds=60))
    measured = dict(zip(cells(chapter.tables[0], "for"), chapter.tables[0].rows, strict=True))
    for kind in ("stabilization", "beacon"):
        row = measured[kind]
        assert row[2] == pytest.approx(row[3], rel=0.2)


def test_balance_is_better_with_candidates_and_a_window(monkeypatch) -> None:
    monkeypatch.setattr(balance, "PARTITIONS_EACH", 10)
    chapter = balance.balance(replace(SMALL, nodes=100))
    ratios = cells(chapter.tables[0], "max / mean>")
    keys, chosen_keys, plain, chosen, window, moved, consumers, chosen_home, two = ratios
    assert 1 < chosen_keys < keys
    assert 1 <= window < chosen < plain
    assert window <= moved < plain
    assert 1 <= two < chosen_home < consumers


def test_replicas_are_neither_lost_nor_doubled_when_nodes_leave() -> None:
    town = balance.Town("moves", 50, chosen=True)
    balance._after_moves(town, 50, "moves")
    assert sum(town.loads()) == 50 * balance.PARTITIONS_EACH * balance.REPLICAS
    assert not any(node.has_replica for node in town.nodes)


def test_churn_counts_what_came_and_went(monkeypatch) -> None:
    monkeypatch.setattr(trouble_run, "CHURN_RATES", (0.5,))
    table = trouble_run.churn(replace(SMALL, nodes=30, seconds=6)).tables[0]
    assert cells(table, "joins>")[0] > 5  # type: ignore[operator]
    assert cells(table, "crashes>")[0] > 5  # type: ignore[operator]
    assert cells(table, "lookups>")[0] > 200  # type: ignore[operator]


def test_lookups_go_round_the_dead(monkeypatch) -> None:
    monkeypatch.setattr(trouble_run, "CRASHED_SHARES", (0.0, 0.3))
    monkeypatch.setattr(trouble_run, "LOOKUPS", 80)
    crash, recovery = trouble_run.crashed_at_once(replace(SMALL, nodes=40)).tables
    none, some = cells(crash, "questions to the dead>")
    assert none == 0.0 < some  # type: ignore[operator]
    assert cells(crash, "right>")[0] == "100 %"
    assert cells(recovery, "left>") == [28]
    assert isinstance(cells(recovery, "s until ideal>")[0], int)


def test_a_crowd_doubles_the_ring(monkeypatch) -> None:
    monkeypatch.setattr(trouble_run, "CROWD_SECONDS", 10)
    chapter = trouble_run.crowd(replace(SMALL, nodes=20))
    assert isinstance(cells(chapter.tables[0], "s until ideal>")[0], int)
    assert cells(chapter.tables[0], "then>") == [40]


def test_the_tree_reaches_everybody_and_mends_itself(monkeypatch) -> None:
    monkeypatch.setattr(fanout_run, "GATHER_SECONDS", 3)
    monkeypatch.setattr(fanout_run, "CROWD_SECONDS", 5)
    monkeypatch.setattr(fanout_run, "SETTLE_SECONDS", 3)
    chapter = fanout_run.fanout(replace(SMALL, nodes=40))
    tree, repair, crowd = chapter.tables
    assert cells(tree, "children, max>")[0] <= 16  # type: ignore[operator]
    assert cells(tree, "depth, max>")[0] >= 2  # type: ignore[operator]
    assert cells(tree, "owner's egress>")[0] <= 16.01  # type: ignore[operator]
    assert cells(repair, "consumers below them>")[0] > 0  # type: ignore[operator]
    assert cells(repair, "lost or twice>") == [0]
    assert cells(repair, "incomplete>") == [0]
    assert cells(repair, "max, s>")[0] <= 6  # type: ignore[operator]
    assert cells(crowd, "then>") == [40]


def test_an_audience_tells_who_stands_below_whom() -> None:
    with World("below") as world:
        world.build(30)
        audience = Audience(world)
        audience.parent = {"b": "a", "c": "b", "d": "a", "e": "f", "f": "e"}
        assert fanout_run._below(audience, ["b"]) == ["c"]
        assert fanout_run._below(audience, ["a", "b"]) == ["c", "d"]
        audience.close()


def test_the_same_seed_gives_the_same_figures() -> None:
    options = replace(SMALL, seconds=5)
    first, again = ring_run.maintenance(options), ring_run.maintenance(options)
    assert first == again
    assert first != ring_run.maintenance(replace(options, seed=4))


# --- pictures and the command ---------------------------------------------------------------------


def test_the_picture_is_drawn_from_a_run() -> None:
    what = picture.scene("picture", 40)
    assert len(what.nodes) == 40
    assert what.viewer not in what.successors
    assert len(what.fingers) >= 2
    drawing = picture.draw(what)
    assert drawing == picture.draw(picture.scene("picture", 40))
    root = ElementTree.fromstring(drawing)
    circles = [element for element in root.iter() if element.tag.endswith("circle")]
    assert len(circles) >= 1 + 40 + len(what.fingers)


def test_the_command_prints_tables_and_json() -> None:
    arguments = ["--nodes", "30", "--seconds", "3", "--only", "maintenance"]
    told = CliRunner().invoke(ring, arguments)
    assert told.exit_code == 0
    assert "   30  stabilization" in told.stdout
    assert "maintenance: done in" in told.stderr
    as_json = CliRunner().invoke(ring, [*arguments, "--json"])
    [chapter] = json.loads(as_json.stdout)["parts"]
    assert chapter["name"] == "maintenance"
    assert chapter["run"] == {"nodes": 30, "seconds": 3, "seed": 1}


def test_the_command_knows_the_parts_there_are() -> None:
    assert list(CHAPTERS) == CHAPTER_NAMES
    for arguments in (["--only", "nothing"], ["--only", "picture"], ["--nodes", "3"]):
        assert CliRunner().invoke(ring, arguments).exit_code == 2


def test_the_command_draws_the_picture_alone(tmp_path) -> None:
    target = tmp_path / "ring.svg"
    told = CliRunner().invoke(ring, ["--only", "picture", "--picture", str(target)])
    assert told.exit_code == 0
    assert ElementTree.fromstring(target.read_text()).tag.endswith("svg")


def test_the_command_draws_and_writes(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "scale.md").write_text("<!-- table maintenance -->\n<!-- end -->\n")
    command = [sys.executable, "-c", "from hocket.cli.commands.sim_ring import ring; ring()"]
    command += ["--nodes", "30", "--seconds", "3", "--only", "maintenance"]
    # A process of its own: the plotting library keeps its fonts open.
    subprocess.run([*command, "--write", str(tmp_path)], check=True, capture_output=True)
    assert "| 30 | stabilization |" in (tmp_path / "scale.md").read_text()
    for name in ("scale_maintenance.svg", "ring_picture.svg"):
        ElementTree.fromstring((tmp_path / name).read_text())


def test_without_the_plotting_library_one_is_told_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPlotting, match=r"pip install 'hocket\[bench\]'"):
        plot(tmp_path, [])
