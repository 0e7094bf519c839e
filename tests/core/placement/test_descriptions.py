"""What one node asks another about its partitions fits one frame, and so does every answer."""

from __future__ import annotations

from hocket.core.placement.descriptions import (
    GROUPS_MAX,
    PROBLEM_MAX,
    GetPartitions,
    PartitionsAre,
)
from hocket.model import NAME_BYTES_MAX, PartitionDescription
from hocket.node.messages import CODEC
from hocket.wire.framing import HEADER_BYTES_MAX

MANY = 2**64 - 1
REPLICAS = 16


def test_the_longest_question_and_the_longest_answer_fit_a_frame():
    name = "n" * NAME_BYTES_MAX
    partition = PartitionDescription(
        1, MANY, MANY, MANY, MANY, MANY, MANY, MANY, name, (name,) * REPLICAS,
        "\N{EURO SIGN}" * PROBLEM_MAX, MANY, known=False,
    )  # fmt: skip
    for message in (
        GetPartitions(1, (MANY,) * GROUPS_MAX),
        PartitionsAre(1, (partition,) * GROUPS_MAX),
    ):
        header, payload = CODEC.encode(message)
        assert len(header) <= HEADER_BYTES_MAX
        assert payload == []
        assert CODEC.decode(header).message == message
