"""What clients ask about the plug-ins of a node."""

from __future__ import annotations

from hocket import frames
from hocket.core.session.session import Demand, Session
from hocket.node.wiring import Servant, Wiring


def servants(wiring: Wiring) -> dict[type, Servant]:
    def describe(connection: int, _session: Session, demand: Demand, _payload: memoryview) -> None:
        states = wiring.hooks.states()
        answer = frames.PluginsAre(demand.frame.request, wiring.catalogue.me, wiring.name, states)
        wiring.network.send(connection, answer)

    return {frames.DescribePlugins: describe}
