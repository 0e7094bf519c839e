"""How every node comes to hold the metadata's log (group 0): the root tells, the others follow."""
