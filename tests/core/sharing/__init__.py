"""Tests of `hocket.core.sharing`."""
