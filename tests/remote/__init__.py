"""Names across processes: the contracts of levels 1 and 2 over sockets, and what is particular."""
