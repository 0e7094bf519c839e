"""What tests of the node stand on: simulated worlds with clients, and raw connections."""
