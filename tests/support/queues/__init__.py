"""What the contract suite of queues stands on: every kind of broker, and attentive listeners."""
