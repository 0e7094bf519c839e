"""Hostile inputs against a served broker, while a well-behaved victim works on it."""
