"""A node among others: its ring member, its relays, who leads, and what it remembers."""
