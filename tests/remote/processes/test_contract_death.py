from tests.contract.test_death import *  # noqa: F403
