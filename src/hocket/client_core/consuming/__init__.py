"""A subscription with an index of its own: deliveries in, messages out, acks back."""
