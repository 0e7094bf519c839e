"""One connection as the broker sees it: who it is, what it has open, what it may do."""
