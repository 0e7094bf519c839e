"""Records on their way to a broker: gathered, cut into batches, delivered, staged."""
