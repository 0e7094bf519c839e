"""Which nodes hold a partition, which node serves a consumer, and which node leads a partition."""
