from tests.contract.test_messages import *  # noqa: F403
