"""Tests of `hocket.client_core.sharing`."""
