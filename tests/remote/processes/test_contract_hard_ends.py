from tests.contract.test_hard_ends import *  # noqa: F403
