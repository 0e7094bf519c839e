"""Tests of `hocket.client.consuming`."""
