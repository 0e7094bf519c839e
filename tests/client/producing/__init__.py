"""Tests of `hocket.client_core.producing`."""
