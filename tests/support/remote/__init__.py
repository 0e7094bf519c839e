"""What tests of names across processes stand on: a served node, and worlds with managers of it."""
