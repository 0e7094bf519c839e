"""Draws as SVG how a topic fans out: for each partition its nodes, level by level from the root."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hocket.cli import output
from hocket.cli.tree import depth_of, partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hocket.cluster_model import TreeDescription, TreeNode

WIDTH = 1000
LEVEL_HEIGHT = 110
HEAD_HEIGHT = 60
RADIUS = 9
NAME_MAX = 14


def drawn(found: TreeDescription, named: Callable[[str], str]) -> str:
    parts: list[str] = []
    top = HEAD_HEIGHT
    for partition, nodes in partitions_of(found).items():
        levels = _levels(nodes)
        parts.append(f'<text x="20" y="{top}" font-size="16">partition {partition}</text>')
        parts += _partition(levels, nodes, top + 40, named)
        top += 60 + LEVEL_HEIGHT * len(levels)
    title = escape(f"How topic {found.topic} fans out")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" '
            'font-family="sans-serif" font-size="13">',
            f"<title>{title}</title>",
            f'<rect width="{WIDTH}" height="{top}" fill="white"/>',
            f'<text x="20" y="30" font-size="18">{title}</text>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _levels(nodes: list[TreeNode]) -> list[list[TreeNode]]:
    """The nodes of each depth; those that look for a parent come last."""
    by_node = {each.node: each for each in nodes}
    levels: dict[int, list[TreeNode]] = {}
    for each in nodes:
        depth = depth_of(each, by_node)
        levels.setdefault(len(nodes) if depth is None else depth, []).append(each)
    return [levels[depth] for depth in sorted(levels)]


def _partition(
    levels: list[list[TreeNode]], nodes: list[TreeNode], top: int, named: Callable[[str], str]
) -> list[str]:
    where: dict[str, tuple[float, float]] = {}
    for row, level in enumerate(levels):
        for column, each in enumerate(level):
            where[each.node] = (WIDTH * (column + 1) / (len(level) + 1), top + row * LEVEL_HEIGHT)
    lines, dots = [], []
    for each in nodes:
        x, y = where[each.node]
        for child, size in zip(each.children, each.child_bytes, strict=False):
            if child in where:
                lines.append(_link(x, y, *where[child], output.size(size)))
        name = named(each.node)
        if len(name) > NAME_MAX:
            name = f"{name[: NAME_MAX - 1]}…"
        colour = "#c60" if each.is_root else "#da2" if each.reads_log else "#2a7"
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="{colour}" stroke="white">'
            f"<title>{escape(each.node)}</title></circle>"
            f'<text x="{x:.1f}" y="{y - 14:.1f}" text-anchor="middle">{escape(name)}</text>'
            f'<text x="{x:.1f}" y="{y + 24:.1f}" text-anchor="middle" fill="#555">'
            f"{each.consumers} consumers</text>"
        )
    return lines + dots


def _link(x1: float, y1: float, x2: float, y2: float, size: str) -> str:
    return (
        f'<path d="M{x1:.1f} {y1:.1f} L{x2:.1f} {y2:.1f}" stroke="#4a7ebb"/>'
        f'<text x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2:.1f}" fill="#4a7ebb" '
        f'text-anchor="middle" font-size="11">{escape(size)}</text>'
    )
