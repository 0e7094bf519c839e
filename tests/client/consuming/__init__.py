"""Tests of `hocket.client_core.consuming`."""
