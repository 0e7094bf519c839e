"""How a topic fans out, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from hocket.cluster_model import TreeDescription, TreeNode


def partitions_of(found: TreeDescription) -> dict[int, list[TreeNode]]:
    trees: dict[int, list[TreeNode]] = {}
    for node in found.nodes:
        trees.setdefault(node.partition, []).append(node)
    return trees


def root_of(nodes: list[TreeNode]) -> str:
    """The leader; empty: nobody that answered leads the partition."""
    return next((each.node for each in nodes if each.is_root), "")


def fields(found: TreeDescription) -> list[dict[str, Any]]:
    return [
        {
            "topic": found.topic,
            "partition": partition,
            "root": root_of(nodes),
            "nodes": [
                {
                    "node": each.node,
                    "parent": each.parent or None,
                    "reads_log": each.reads_log,
                    "children": list(each.children),
                    "consumers": each.consumers,
                    "bytes_out": each.bytes_out,
                    "links": [
                        {"node": child, "bytes": size}
                        for child, size in zip(each.children, each.child_bytes, strict=False)
                    ],
                }
                for each in nodes
            ],
        }
        for partition, nodes in partitions_of(found).items()
    ]


def depth_of(node: TreeNode, by_node: dict[str, TreeNode]) -> int | None:
    """How many steps it is from a root; None: its parents do not lead there."""
    at, depth = node, 0
    while not at.is_root and not at.reads_log:
        depth += 1
        above = by_node.get(at.parent)
        if above is None or depth > len(by_node):
            return None
        at = above
    return depth


def is_tree(found: TreeDescription) -> bool:
    """Whether any partition has nodes beside the one that leads it."""
    return any(not each.is_root for each in found.nodes)


def table(found: TreeDescription, named: Callable[[str], str]) -> str:
    """Each partition's nodes, the roots first, each behind its parent."""
    rows: list[tuple[str | int, ...]] = []
    for partition, nodes in partitions_of(found).items():
        by_node = {each.node: each for each in nodes}
        depths = {each.node: depth_of(each, by_node) for each in nodes}
        for each in sorted(nodes, key=lambda one: _rank(depths[one.node], one)):
            depth = depths[each.node]
            links = [
                f"{named(child)} {output.size(size)}"
                for child, size in zip(each.children, each.child_bytes, strict=False)
            ]
            rows.append(
                (partition, "-" if depth is None else depth, named(each.node),
                 named(each.parent) if each.parent else "-", each.consumers,
                 output.size(each.bytes_out), ", ".join(links) or "-")
            )  # fmt: skip
    head = ["PARTITION>", "DEPTH>", "NODE", "PARENT", "CONSUMERS>", "BYTES OUT>", "CHILDREN"]
    return output.table(head, rows)


def _rank(depth: int | None, node: TreeNode) -> tuple[bool, int, str]:
    return depth is None, depth or 0, node.node
