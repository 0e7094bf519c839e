"""Tests of `hocket.client.sharing`."""
