from tests.contract.test_aborting import *  # noqa: F403
