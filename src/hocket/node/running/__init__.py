"""What runs on a node: its partitions, its deliveries, its shared indexes."""
