"""Damaged stores: a small killed store, every place in it, what each damage does to a broker."""
