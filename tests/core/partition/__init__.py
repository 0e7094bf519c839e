"""Tests of `hocket.core.partition`."""
