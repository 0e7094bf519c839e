"""The real clock, disk, threads and network."""
