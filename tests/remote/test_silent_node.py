"""A node that stands still: it is connected to, and says nothing."""

import time

from hocket.addresses import Address
from hocket.local import EventPump, QueueBroker
from tests.support.client.sockets import ScriptedServer
from tests.support.remote.served import ServedNode


def test_a_process_goes_on_by_another_node():
    def silent(_frame, _payload):
        return ()

    with ScriptedServer(silent) as other, ServedNode() as node, EventPump() as pump:
        begun = time.monotonic()
        addresses = (Address("127.0.0.1", other.port), node.address)
        with node.manager(addresses=addresses) as names:
            QueueBroker("found", pump, names)
            assert time.monotonic() - begun < 8
        assert other.kinds() == ["Hello"]
