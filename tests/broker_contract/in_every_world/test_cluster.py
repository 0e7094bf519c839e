"""What is set for the whole cluster, in every world."""

from __future__ import annotations

import pytest

from hocket import errors


def test_what_is_set_is_told(world, client):
    found = client.describe_cluster()
    assert found.nodes == world.nodes
    assert found.replication == world.replication
    assert found.cluster == client.cluster


def test_a_default_is_set_and_no_larger_than_the_cluster(world, client):
    client.set_cluster(replication=world.replication)
    with pytest.raises(errors.NotEnoughNodes, match=str(world.nodes + 1)):
        client.set_cluster(replication=world.nodes + 1)
    for wrong in (0, -1, 256):
        with pytest.raises(errors.OutOfRange, match=str(wrong)):
            client.set_cluster(replication=wrong)
    with pytest.raises(errors.WrongType, match="three"):
        client.set_cluster(replication="three")
    assert client.describe_cluster().replication == world.replication
