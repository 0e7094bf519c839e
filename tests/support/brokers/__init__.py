"""What the contract suite of brokers stands on: every way to a broker, and a bad network."""
