"""A picture of a ring with the fingers of one node and the way of one lookup, as SVG.

Everything in it is read from the members of a run: their positions, the nodes that one of them
points at, and the nodes that its lookup asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import cos, pi, sin
from xml.sax.saxutils import escape

from hocket.core.ring.circle import SIZE, distance
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located, NotLocated
from hocket.sim.scale.world import World, fingers_only

WIDTH = 800
HEIGHT = 700
CENTRE = (330.0, 350.0)
RADIUS = 270.0
NODES = 64
SUCCESSORS = 4

FINGER = "#1f77b4"
SUCCESSOR = "#2ca02c"
ROUTE = "#d62728"


@dataclass(slots=True)
class Scene:
    """What is drawn."""

    nodes: list[Contact]
    viewer: Contact
    successors: list[Contact]
    predecessor: Contact | None
    fingers: dict[int, Contact]  # by exponent
    key: int
    route: list[Contact]  # the nodes asked, in order
    owner: Contact


def scene(seed: object, nodes: int = NODES) -> Scene:
    """A ring that has run for a while, and the longest of some lookups of one of its nodes."""
    settings = fingers_only()
    settings.successors = min(SUCCESSORS, nodes - 1)
    with World(seed, settings) as world:
        world.build(nodes)
        world.run_seconds(settings.finger_us / 1_000_000)
        viewer = world.members[world.root]
        found: list[Located] = []

        def done(result: Located | NotLocated) -> None:
            if isinstance(result, Located):
                found.append(result)

        chance = world.scheduler.random("keys")
        for _ in range(50):
            viewer.find(chance.randrange(SIZE), done)
        world.run_seconds(settings.lookup_us_max / 1_000_000)
        longest = max(found, key=lambda located: len(located.route))
        core = viewer.core
        return Scene(
            nodes=list(world.contacts),
            viewer=core.me,
            successors=list(core.successors),
            predecessor=core.predecessor,
            fingers=dict(core.fingers.entries),
            key=longest.key,
            route=list(longest.route),
            owner=longest.owners[0],
        )


def draw(what: Scene) -> str:
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(_title(what))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _circle(CENTRE, RADIUS, fill="none", stroke="#bbbbbb"),
    ]
    shapes += _fingers(what)
    shapes += _route(what)
    shapes += _nodes(what)
    shapes += _legend(what)
    return "\n".join([*shapes, "</svg>"]) + "\n"


def _title(what: Scene) -> str:
    return (
        f"A ring of {len(what.nodes)} nodes, the fingers of one of them, and a lookup of it that "
        f"asked {len(what.route)} nodes"
    )


def _at(what: Scene, position: int, radius: float = RADIUS) -> tuple[float, float]:
    """The viewer stands at the top, and positions grow clockwise from it."""
    angle = 2 * pi * distance(what.viewer.position, position) / SIZE
    return CENTRE[0] + radius * sin(angle), CENTRE[1] - radius * cos(angle)


def _circle(at: tuple[float, float], radius: float, *, fill: str, stroke: str = "none") -> str:
    place = f'cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:g}"'
    return f'<circle {place} fill="{fill}" stroke="{stroke}"/>'


def _curve(
    start: tuple[float, float], end: tuple[float, float], colour: str, *, extra: str = ""
) -> str:
    """Bent towards the centre, so that lines between neighbours can be seen."""
    middle = [(s + e) / 2 * 0.65 + c * 0.35 for s, e, c in zip(start, end, CENTRE, strict=True)]
    return (
        f'<path d="M{start[0]:.1f} {start[1]:.1f} Q{middle[0]:.1f} {middle[1]:.1f} '
        f'{end[0]:.1f} {end[1]:.1f}" fill="none" stroke="{colour}" {extra}/>'
    )


def _fingers(what: Scene) -> list[str]:
    shapes: list[str] = []
    here = _at(what, what.viewer.position)
    for exponent in sorted(what.fingers):
        finger = what.fingers[exponent]
        start = _at(what, (what.viewer.position + (1 << exponent)) % SIZE, RADIUS + 16)
        shapes.append(_circle(start, 1.5, fill=FINGER))
        label = _at(what, (what.viewer.position + (1 << exponent)) % SIZE, RADIUS + 34)
        shapes.append(
            f'<text x="{label[0]:.1f}" y="{label[1] + 4:.1f}" fill="{FINGER}" '
            f'text-anchor="middle">+2<tspan dy="-5" font-size="9">{exponent}</tspan></text>'
        )
        shapes.append(_curve(here, _at(what, finger.position), FINGER, extra='stroke-width="1.4"'))
    return shapes


def _route(what: Scene) -> list[str]:
    places = [_at(what, what.viewer.position)]
    places += [_at(what, contact.position) for contact in [*what.route, what.owner]]
    dashes = 'stroke-width="2.2" stroke-dasharray="6 4"'
    shapes = [_curve(start, end, ROUTE, extra=dashes) for start, end in pairwise(places)]
    key = _at(what, what.key)
    shapes.append(
        f'<path d="M{key[0] - 5:.1f} {key[1] - 5:.1f} l10 10 m0 -10 l-10 10" '
        f'stroke="{ROUTE}" stroke-width="2"/>'
    )
    return shapes


def _nodes(what: Scene) -> list[str]:
    near = {contact.position for contact in what.successors}
    pointed = {contact.position for contact in what.fingers.values()}
    shapes: list[str] = []
    for contact in what.nodes:
        at = _at(what, contact.position)
        if contact.position == what.viewer.position:
            shapes.append(_circle(at, 8, fill="black"))
        elif contact.position in near:
            shapes.append(_circle(at, 5.5, fill=SUCCESSOR))
        elif contact.position in pointed:
            shapes.append(_circle(at, 5.5, fill=FINGER))
        else:
            shapes.append(_circle(at, 4, fill="#777777"))
    return shapes


def _legend(what: Scene) -> list[str]:
    lines = [
        ("black", "the node"),
        (SUCCESSOR, f"its {len(what.successors)} successors"),
        (FINGER, f"its {len(what.fingers)} fingers, each in"),
        ("none", "[+2ⁱ, +2ⁱ⁺¹) ahead of it"),
        (ROUTE, "a lookup: those asked, in turn;"),
        ("none", "then the owner of the key (cross)"),
    ]
    shapes: list[str] = []
    for row, (colour, words) in enumerate(lines):
        y = 30 + 20 * row
        shapes.append(_circle((560, y - 4), 5, fill=colour))
        shapes.append(f'<text x="572" y="{y}">{escape(words)}</text>')
    return shapes
