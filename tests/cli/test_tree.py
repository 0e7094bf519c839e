"""How a topic fans out, in a table, as JSON and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

from hocket.cli.tree import depth_of, fields, is_tree, table
from hocket.cli.tree_picture import drawn
from hocket.cluster_model import TreeDescription, TreeNode

ROOT = TreeNode(0, "a", "", ("b",), (2048,), 1, 4096, is_root=True)
CHILD = TreeNode(0, "b", "a", ("c<",), (2048,), 2, 6144, is_root=False)
LEAF = TreeNode(0, "c<", "b", (), (), 3, 6144, is_root=False)
STRAY = TreeNode(1, "b", "gone", (), (), 1, 0, is_root=False)
FOUND = TreeDescription("news", (ROOT, CHILD, LEAF, STRAY), ())


def test_json_has_a_tree_for_each_partition():
    first, second = fields(FOUND)
    assert (first["topic"], first["partition"], first["root"]) == ("news", 0, "a")
    assert first["nodes"][1] == {
        "node": "b", "parent": "a", "reads_log": False, "children": ["c<"],
        "consumers": 2, "bytes_out": 6144,
        "links": [{"node": "c<", "bytes": 2048}],
    }  # fmt: skip
    assert first["nodes"][0]["parent"] is None
    assert (second["partition"], second["root"]) == (1, "")


def test_the_table_goes_from_the_root_down():
    rows = [row.split() for row in table(FOUND, str.upper).splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        ["0", "0", "A", "-", "1"],
        ["0", "1", "B", "A", "2"],
        ["0", "2", "C<", "B", "3"],
        ["1", "-", "B", "GONE", "1"],
    ]


def test_parents_in_a_circle_have_no_depth():
    one = TreeNode(0, "x", "y", (), (), 1, 0, is_root=False)
    other = TreeNode(0, "y", "x", (), (), 1, 0, is_root=False)
    assert depth_of(one, {"x": one, "y": other}) is None


def test_a_leader_alone_is_no_tree():
    assert is_tree(FOUND)
    assert not is_tree(TreeDescription("news", (ROOT,), ()))


def test_the_picture_is_a_picture():
    picture = ElementTree.fromstring(drawn(FOUND, lambda node: node * 20))
    texts = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert sum("consumers" in text for text in texts) == 4
    assert "partition 1" in texts
    assert any(text.startswith("c<c<") and text.endswith("…") for text in texts)
