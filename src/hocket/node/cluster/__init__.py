"""A node among others: its place on the ring, its relays, and what it remembers of them."""
