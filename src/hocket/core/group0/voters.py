"""Who votes in group 0: few enough to agree quickly, and apart enough not to fail together.

One voter with one or two nodes, three from three nodes on, five from seven. All other nodes are
learners: they have the same log, and count for nothing.

Rule 1: whoever leads has a vote.
Rule 2: a node that is dead, does not answer, or has not come as far as the leader, is given no
        vote. One that has a vote keeps it until it is given up as dead and a node that lives can
        take its place: two voters are worse than one.
Rule 3: a gateway, a node with no capacity, is given a vote only if there are too few others: it is
        there to hold nothing. It gives the vote up to the first other node that is fit for it.
Rule 4: nodes of different failure domains come first, then those that have a vote already: so that
        nothing changes unless it becomes better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from hocket.core.ring.contact import Contact

FOR_THREE, FOR_FIVE = 3, 7  # as many nodes, so many voters


def count_for(nodes: int) -> int:
    return 1 if nodes < FOR_THREE else 3 if nodes < FOR_FIVE else 5


def voters_for(
    members: Sequence[Contact], *, leader: str, voters: Collection[str], fit: Collection[str]
) -> tuple[str, ...]:
    """The voters that group 0 should have, in the order of their ids.

    `members` are the nodes of the cluster, `voters` those who vote now, and `fit` the nodes that
    may vote: they live and have come as far as the leader.
    """
    candidates = [each for each in members if each.node in fit or each.node in voters]
    own = [each for each in candidates if each.node == leader]
    count = count_for(len(members))
    while count > max(len(candidates), 1):
        count -= 2
    chosen = {leader}
    domains = Counter(each.domain for each in own if each.domain)
    left = [each for each in candidates if each.node != leader]
    while len(chosen) < count and left:
        best = min(
            left,
            key=lambda each: (
                each.node not in fit,
                not each.capacity,
                domains[each.domain] if each.domain else 0,
                each.node not in voters,
                each.node,
            ),
        )
        left.remove(best)
        chosen.add(best.node)
        if best.domain:
            domains[best.domain] += 1
    return tuple(sorted(chosen))
