"""Tests of `hocket.node.cluster`."""
