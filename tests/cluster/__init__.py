"""Clusters of real processes: a short slice runs by default, the whole with `make test-cluster`."""
