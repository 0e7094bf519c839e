"""How long a client waits for a node before it looks elsewhere."""

from __future__ import annotations

from hocket.model import SECOND_US

GREETING_US = 10 * SECOND_US  # so long the broker may take to answer Hello
# So long one of several addresses may take for everything up to that, before the next one is tried.
# A node that stands still takes connections, too, and says nothing. Only if none of them makes it
# in this time may they take longer: the machine is busy, say.
GREETING_IN_COMPANY_US = 2 * SECOND_US
# The same for a node that others name: it may stand still, and soon another one leads in its place.
# A node that has missed it twice, and is still named, is given longer.
GREETING_OF_LEADER_US = 3 * SECOND_US
SILENCE_US = 15 * SECOND_US  # then we send a Ping; after as long again the link counts as lost
# The same if there are other nodes: one of them may lead in place of a node that stands still, or
# whose machine is gone without a word.
SILENCE_IN_COMPANY_US = 5 * SECOND_US
NODES_ASKED_EVERY = 3  # Pings are questions for new nodes, which cost more
STABLE_US = SECOND_US  # after a link that lasted so long, the next one is opened soon
