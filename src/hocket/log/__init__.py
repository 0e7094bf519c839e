"""The log of a node: WAL, segments, memory tier, recovery."""
