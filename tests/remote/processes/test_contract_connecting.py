from tests.contract.test_connecting import *  # noqa: F403
