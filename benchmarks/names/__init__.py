"""Two processes that talk by name, against what a user would pick instead."""
