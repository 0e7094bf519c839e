"""The commands, one file for each. What they share stands above, in `hocket.cli`."""
