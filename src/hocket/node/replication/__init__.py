"""How the copies of a group on several nodes are kept alike: the driver of `core.raft`."""
