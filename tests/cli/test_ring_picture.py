"""The picture of a ring: names do not cover each other, and stay within the picture."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

import pytest

from hocket.cli.ring_picture import CENTRE_X, HEIGHT, LABEL_HEIGHT, WIDTH, drawn
from hocket.cluster_model import RingDescription, RingNode

CROWD = [Random(3).getrandbits(64) for _ in range(20)] + [1 << 58, (1 << 58) + 1, (1 << 58) + 2]


def ring(positions: list[int], name: str = "node") -> RingDescription:
    ordered = sorted(positions)
    return RingDescription(
        "c" * 32,
        True,
        8,
        tuple(
            RingNode(f"{at}", f"{name}-{at}", "h:1", position, (), "", ())
            for at, position in enumerate(ordered)
        ),
        (),
    )


def labels(picture: str) -> list[tuple[float, float]]:
    texts = ElementTree.fromstring(picture).findall("{http://www.w3.org/2000/svg}text")
    return [
        (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in texts
        if "text-anchor" in text.attrib
    ]


@pytest.mark.parametrize(
    "positions",
    [CROWD, [0, 1, 2, 3], [(1 << 64) - 1 - at for at in range(9)], [1 << 63], [(1 << 63) - 1, 0]],
)
def test_names_do_not_cover_each_other(positions: list[int]):
    found = labels(drawn(ring(positions)))
    assert len(found) == len(positions)
    for side in (True, False):
        heights = sorted(y for x, y in found if (x < CENTRE_X) is side)
        assert all(low - high >= LABEL_HEIGHT - 0.2 for high, low in pairwise(heights))
        assert all(0 < height < HEIGHT for height in heights)


def test_more_names_than_there_is_room_for_stay_in_the_picture():
    found = labels(drawn(ring([at << 50 for at in range(100)])))
    assert len(found) == 100
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in found)


def test_a_long_name_is_cut():
    text = drawn(ring([5], "n" * 60))
    assert re.search(r">n{25}…</text>", text)
    assert "1 node, ideal" in text
    assert "no fingers" in text
