"""Draws a ring as SVG: its nodes where they are, their successors, and their fingers as chords."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import cos, pi, sin, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hocket.cluster_model import RingDescription, RingNode

WIDTH, HEIGHT = 1000, 760  # names stand on the left and on the right
CENTRE_X, CENTRE_Y = WIDTH / 2, HEIGHT / 2
RADIUS = 250.0
LABEL_RADIUS = 275.0
LABEL_HEIGHT = 17.0
LABEL_TOP, LABEL_BOTTOM = 90.0, HEIGHT - 70.0  # beyond them stands what the picture is
NAME_MAX = 26  # characters that fit beside the ring
CIRCLE = 1 << 64


def _point(position: int, radius: float) -> tuple[float, float]:
    """Position 0 is at the top, and positions grow clockwise."""
    angle = 2 * pi * position / CIRCLE - pi / 2
    return CENTRE_X + radius * cos(angle), CENTRE_Y + radius * sin(angle)


def _heights(nodes: Sequence[RingNode]) -> list[float]:
    """Where the names of these nodes stand, which go down one side of the ring.

    A name is beside its node, or as near as it can be without covering another.
    """
    room = (LABEL_BOTTOM - LABEL_TOP) / max(1, len(nodes) - 1)
    step = min(LABEL_HEIGHT, room)
    found: list[float] = []
    above = LABEL_TOP - step
    for node in nodes:
        above = max(_point(node.position, LABEL_RADIUS)[1], above + step)
        found.append(above)
    below = LABEL_BOTTOM + step
    for at in reversed(range(len(found))):
        below = found[at] = min(found[at], below - step)
    return found


def drawn(ring: RingDescription) -> str:
    where = {node.node: node.position for node in ring.nodes}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="14">',
        f"<title>The ring of cluster {escape(ring.cluster)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<circle cx="{CENTRE_X}" cy="{CENTRE_Y}" r="{RADIUS}" fill="none" stroke="#999"/>',
    ]
    for node in ring.nodes:
        for finger in node.fingers:
            if finger in where:
                parts.append(_chord(node.position, where[finger]))
    # Clockwise from the top is down on the right and up on the left.
    right = [node for node in ring.nodes if node.position < CIRCLE // 2]
    left = [node for node in reversed(ring.nodes) if node.position >= CIRCLE // 2]
    for side in (right, left):
        for node, height in zip(side, _heights(side), strict=True):
            parts.append(_node(node, height, is_left=side is left, is_ideal=ring.ideal))
    state = "ideal" if ring.ideal else "not ideal"
    count = f"{len(ring.nodes)} node{'' if len(ring.nodes) == 1 else 's'}"
    chords = "chords: fingers, the short cuts of lookups"
    if not any(node.fingers for node in ring.nodes):
        chords = "no fingers: each node knows all others"
    parts += [
        f'<text x="20" y="30" font-size="18">{count}, {state}</text>',
        f'<text x="20" y="50" fill="#555">cluster {escape(ring.cluster)}</text>',
        f'<text x="20" y="{HEIGHT - 36}" fill="#555">dots: nodes, at their positions, clockwise '
        "from the top</text>",
        f'<text x="20" y="{HEIGHT - 16}" fill="#555">{chords}; '
        f"successor lists have {ring.successors} entries</text>",
    ]
    if ring.silent:
        silent = ", ".join(escape(each[:8]) for each in ring.silent)
        parts.append(f'<text x="20" y="72" fill="#b00">silent: {silent}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _chord(start: int, end: int) -> str:
    (x1, y1), (x2, y2) = _point(start, RADIUS), _point(end, RADIUS)
    return (
        f'<path d="M{x1:.1f} {y1:.1f} Q{CENTRE_X:.1f} {CENTRE_Y:.1f} {x2:.1f} {y2:.1f}" '
        'fill="none" stroke="#4a7ebb" stroke-opacity="0.35"/>'
    )


def _node(node: RingNode, height: float, *, is_left: bool, is_ideal: bool) -> str:
    x, y = _point(node.position, RADIUS)
    away = sqrt(max(0.0, LABEL_RADIUS**2 - (height - CENTRE_Y) ** 2)) + 8
    label_x = CENTRE_X - away if is_left else CENTRE_X + away
    name = node.name[:8] if len(node.name) == 32 else node.name
    if len(name) > NAME_MAX:
        name = f"{name[: NAME_MAX - 1]}…"
    colour = "#2a7" if is_ideal else "#d80"
    near = label_x + 4 if is_left else label_x - 4
    return (
        f'<path d="M{x:.1f} {y:.1f} L{near:.1f} {height:.1f}" stroke="#bbb"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="{colour}" stroke="white"><title>'
        f"{escape(node.node)} at {escape(node.address)}</title></circle>"
        f'<text x="{label_x:.1f}" y="{height + 5:.1f}" text-anchor='
        f'"{"end" if is_left else "start"}">{escape(name)}</text>'
    )
