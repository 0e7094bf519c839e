from tests.contract.test_receiving import *  # noqa: F403
