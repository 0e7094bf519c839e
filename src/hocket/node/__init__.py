"""The broker: one driver over the cores, and the places it runs in."""
