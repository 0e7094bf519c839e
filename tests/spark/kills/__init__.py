"""Real Spark jobs that are killed at named stages, and what must be true of their output."""
