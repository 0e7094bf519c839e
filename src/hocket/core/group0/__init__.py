"""What is particular to the metadata's group (group 0): who has a vote, and requests handed on."""
