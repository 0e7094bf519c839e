"""A subscription to a shared index: leases in, verdicts back."""
