"""Tests of `hocket.core.relay`."""
