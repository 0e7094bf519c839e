"""The contracts of levels 1 and 2 across processes of their own."""
