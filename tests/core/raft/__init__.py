"""Tests of `hocket.core.raft`."""
