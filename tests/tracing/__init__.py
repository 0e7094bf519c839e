"""Traces: what messages carry, and the spans of clients, nodes and queries."""
