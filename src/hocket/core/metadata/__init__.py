"""What a broker knows of itself, kept in the log of group 0: topics, users, roles, nodes."""
