from tests.contract.test_many_connections import *  # noqa: F403
