"""Hocket: messaging for Python, from a ring buffer between two threads upwards."""

__version__ = "0.1.0"
