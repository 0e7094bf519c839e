"""Tests of `hocket.client.connection`."""
