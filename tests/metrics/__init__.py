"""Metrics: what is served, and that names, documents, dashboard and rules agree."""
