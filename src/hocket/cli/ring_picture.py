"""Draws a ring as SVG: its nodes where they are, their successors, and their fingers as chords."""

from __future__ import annotations

from html import escape
from math import cos, pi, sin
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hocket.cluster_model import RingDescription, RingNode

SIZE = 760
CENTRE = SIZE / 2
RADIUS = 250.0
LABEL_RADIUS = 275.0
CIRCLE = 1 << 64


def _point(position: int, radius: float) -> tuple[float, float]:
    """Position 0 is at the top, and positions grow clockwise."""
    angle = 2 * pi * position / CIRCLE - pi / 2
    return CENTRE + radius * cos(angle), CENTRE + radius * sin(angle)


def drawn(ring: RingDescription) -> str:
    where = {node.node: node.position for node in ring.nodes}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" '
        'font-family="sans-serif" font-size="14">',
        f"<title>The ring of cluster {escape(ring.cluster)}</title>",
        f'<rect width="{SIZE}" height="{SIZE}" fill="white"/>',
        f'<circle cx="{CENTRE}" cy="{CENTRE}" r="{RADIUS}" fill="none" stroke="#999"/>',
    ]
    for node in ring.nodes:
        for finger in node.fingers:
            if finger in where:
                parts.append(_chord(node.position, where[finger]))
    for node in ring.nodes:
        parts.append(_node(node, is_right=ring.ideal))
    state = "ideal" if ring.ideal else "not ideal"
    parts += [
        f'<text x="20" y="30" font-size="18">{len(ring.nodes)} nodes, {state}</text>',
        f'<text x="20" y="50" fill="#555">cluster {escape(ring.cluster)}</text>',
        f'<text x="20" y="{SIZE - 36}" fill="#555">dots: nodes, at their positions, clockwise '
        "from the top</text>",
        f'<text x="20" y="{SIZE - 16}" fill="#555">chords: fingers, the short cuts of lookups; '
        f"successor lists have {ring.successors} entries</text>",
    ]
    if ring.silent:
        silent = ", ".join(escape(each[:8]) for each in ring.silent)
        parts.append(f'<text x="20" y="72" fill="#b00">silent: {silent}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _chord(start: int, end: int) -> str:
    (x1, y1), (x2, y2) = _point(start, RADIUS), _point(end, RADIUS)
    return (
        f'<path d="M{x1:.1f} {y1:.1f} Q{CENTRE:.1f} {CENTRE:.1f} {x2:.1f} {y2:.1f}" fill="none" '
        'stroke="#4a7ebb" stroke-opacity="0.35"/>'
    )


def _node(node: RingNode, *, is_right: bool) -> str:
    x, y = _point(node.position, RADIUS)
    label_x, label_y = _point(node.position, LABEL_RADIUS)
    anchor = "start" if label_x > CENTRE + 20 else "end" if label_x < CENTRE - 20 else "middle"
    name = node.name[:8] if len(node.name) == 32 else node.name
    colour = "#2a7" if is_right else "#d80"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="{colour}"><title>'
        f"{escape(node.node)} at {escape(node.address)}</title></circle>"
        f'<text x="{label_x:.1f}" y="{label_y + 5:.1f}" text-anchor="{anchor}">'
        f"{escape(name)}</text>"
    )
