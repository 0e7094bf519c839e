"""Tests of `hocket.core.transactions`."""
