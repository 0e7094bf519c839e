from tests.contract.test_limits import *  # noqa: F403
