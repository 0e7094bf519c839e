"""The blocking faces, for any number of threads."""
