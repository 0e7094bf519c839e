"""Many consumers of one topic: on one node, on five, and at NATS JetStream and Redis Streams."""
