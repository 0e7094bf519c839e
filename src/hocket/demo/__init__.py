"""`make demo`: each level at work on this machine."""
