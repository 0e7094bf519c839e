"""Tests of `hocket.core.placement`."""
