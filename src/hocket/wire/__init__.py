"""The protocol without a network: frames, entries and record batches as bytes."""
