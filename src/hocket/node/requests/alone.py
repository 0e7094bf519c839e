"""Requests about the cluster, at a broker that is in none: it runs within its clients' process."""

from __future__ import annotations

from hocket import frames
from hocket.core.session.session import Demand, Session
from hocket.errors import NotEnoughNodes
from hocket.node.wiring import Servant


def servants() -> dict[type, Servant]:
    return dict.fromkeys(
        (frames.DescribeRing, frames.LookUpKey, frames.ListNodes, frames.DescribeTree), _refuse
    )


def _refuse(_connection: int, _session: Session, _demand: Demand, _payload: memoryview) -> None:
    raise NotEnoughNodes(
        "this broker runs within the process, alone: it has no ring. Brokers that are started with "
        "hocket serve have one"
    )
