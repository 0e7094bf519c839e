"""Tests of `hocket.node.background`."""
