from tests.contract.test_waiting_to_send import *  # noqa: F403
