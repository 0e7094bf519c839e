"""Tests of `hocket.core.metadata`."""
