from tests.contract.test_misbehaving_listeners import *  # noqa: F403
