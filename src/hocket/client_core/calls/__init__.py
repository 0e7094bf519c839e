"""Requests that have one answer: topics, indexes, access, dead letters; and users' options."""
