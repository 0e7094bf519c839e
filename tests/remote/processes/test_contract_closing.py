from tests.contract.test_closing import *  # noqa: F403
