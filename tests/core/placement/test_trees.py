"""What nodes tell each other of the trees, for people."""

from __future__ import annotations

from typing import get_args

from hocket.cluster_model import TreeNode
from hocket.core.placement.trees import GetTrees, TreeMessage, TreesAre


def test_a_question_and_its_answer():
    place = TreeNode(0, "n1", "n0", ("n2",), (10,), 3, 40, is_root=False)
    assert set(get_args(TreeMessage)) == {GetTrees, TreesAre}
    assert GetTrees(7, "news", b"").request == TreesAre(7, (place,)).request
