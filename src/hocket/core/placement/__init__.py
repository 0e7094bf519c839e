"""Which nodes hold a partition, which node serves a consumer, and who leads."""
