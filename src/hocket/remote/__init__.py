"""Levels 1 and 2 across processes: brokers that find each other by name through a cluster."""
