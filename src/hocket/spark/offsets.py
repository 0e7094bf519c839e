"""Offsets by topic and partition, and the form in which a query's checkpoint keeps them.

The checkpoint keeps the name of the query's index beside them, so that a query has one index for as
long as its checkpoint lives. It also keeps the id of the cluster that the offsets are of: in
another cluster they would mean other records. (An older checkpoint has no such id.)
"""

from __future__ import annotations

from typing import Any

from hocket.errors import BadName, HocketError, OutOfRange
from hocket.model import check_name

Offsets = dict[str, dict[int, int]]  # topic -> partition -> offset


def to_json(offsets: Offsets, index: str, cluster: str = "") -> dict[str, Any]:
    """The form that Spark logs; the same offsets always make the same text."""
    return {
        **({"cluster": cluster} if cluster else {}),
        "index": index,
        "offsets": {
            topic: {str(number): offsets[topic][number] for number in sorted(offsets[topic])}
            for topic in sorted(offsets)
        },
    }


def from_json(found: dict[str, Any]) -> tuple[Offsets, str]:
    """The offsets and the name of the index. Raises OutOfRange for another source's offsets."""
    try:
        index, by_topic = found["index"], found["offsets"]
        offsets = {
            check_name(topic): {
                _whole(int(number)): _whole(offset) for number, offset in partitions.items()
            }
            for topic, partitions in by_topic.items()
        }
        return offsets, check_name(index, "an index's name")
    except (AttributeError, KeyError, TypeError, ValueError, HocketError) as error:
        reason = f": {error}" if isinstance(error, BadName | OutOfRange) else ""
        raise OutOfRange(
            f"{found!r:.200} are not offsets of a hocket source{reason}; is the checkpoint of "
            "another query used? Give this one a checkpointLocation of its own"
        ) from None


def cluster_in(found: dict[str, Any]) -> str:
    """The id of the cluster that these offsets are of; empty if they do not say."""
    return str(found.get("cluster", ""))


def _whole(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise OutOfRange(f"{number!r} is not an offset")
    return number
