"""Levels 1 and 2, channels, pump and queues, against what Python offers: `make bench-local`."""
