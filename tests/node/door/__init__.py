"""Tests of `hocket.node.door`."""
