"""Tests of `hocket.core.ring`."""
