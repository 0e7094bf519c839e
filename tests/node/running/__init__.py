"""Tests of `hocket.node.running`."""
