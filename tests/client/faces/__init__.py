"""Tests of `hocket.client.faces`."""
