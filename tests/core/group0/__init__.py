"""Tests of `hocket.core.group0`."""
