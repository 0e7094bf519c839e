"""The messages by which a node stores a batch at another one."""

from hocket.core.placement.storing import BatchStored, StoreBatch, StoredBatch


def test_a_message_for_people_does_not_show_the_batch():
    store = StoreBatch(7, 3, (StoredBatch(0, 2, b"secret"),))
    assert "secret" not in repr(store)
    assert BatchStored(7, "stored").code == ""
