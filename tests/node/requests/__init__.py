"""Tests of `hocket.node.requests`."""
