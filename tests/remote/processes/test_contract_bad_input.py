from tests.contract.test_bad_input import *  # noqa: F403
