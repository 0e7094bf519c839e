"""Clusters of real broker processes, for tests."""
