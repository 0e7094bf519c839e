"""Tests of `hocket.client.producing`."""
