"""A Python without what only Linux has: put this folder first on PYTHONPATH."""
