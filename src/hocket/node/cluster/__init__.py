"""A node among others: its membership of the ring, its relays, and what it remembers."""
