"""The stores that keep each partition of a topic, as fields of JSON and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Replicas = tuple[str, ...]  # the ids of the stores that keep a partition, the home first


def holders(replicas: Iterable[Replicas]) -> list[str]:
    return [store for each in replicas for store in each]


def folded(replicas: Sequence[Replicas]) -> dict[str, Any]:
    """A topic may have thousands of partitions on a few nodes: each node is named once."""
    nodes = list(dict.fromkeys(holders(replicas)))
    if len(nodes) < 2:
        return {"home": nodes[0] if nodes else ""}
    place = {node: at for at, node in enumerate(nodes)}
    fields = {"nodes": nodes, "homes": [place[each[0]] for each in replicas]}
    if any(len(each) > 1 for each in replicas):
        fields["others"] = [[place[store] for store in each[1:]] for each in replicas]
    return fields


def unfolded(fields: dict[str, Any], count: int) -> list[Replicas]:
    """The replicas of `count` partitions; an empty text where no home was written down."""
    if "homes" not in fields:
        return [(fields.get("home", ""),)] * count
    nodes, homes = fields["nodes"], fields["homes"]
    others = fields.get("others") or [[]] * len(homes)
    return [
        (nodes[home], *(nodes[at] for at in rest)) for home, rest in zip(homes, others, strict=True)
    ]
