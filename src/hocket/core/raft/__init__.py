"""Raft: how the copies of one group's log agree, and the beat of all groups of a node."""
