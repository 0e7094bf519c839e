from tests.contract.test_many_connections import *  # noqa: F403
from tests.contract.test_many_connections import keep_apart_and_all_end
from tests.support.threads import LONG


def test_thousands_of_connections_between_processes_keep_apart_and_all_end(world, across):
    way, _ = across
    # So many at once may take longer than the direct way is waited for, above all with TLS.
    ways = {"node"} if way == "node" else {"direct", "node"}
    keep_apart_and_all_end(world, 2000 if LONG else 100, ways)
