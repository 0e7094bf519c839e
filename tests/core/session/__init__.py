"""Tests of `hocket.core.session`."""
