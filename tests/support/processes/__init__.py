"""Brokers and workers as processes of their own."""
