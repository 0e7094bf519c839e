"""A shared index: which consumer gets which message, and what becomes of it."""
