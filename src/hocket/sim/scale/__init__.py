"""Thousands of production ring drivers in one process: what the design costs at size."""
