"""What tests of the wire stand on: batches, frames of every kind, damaged headers, joined ends."""
