"""One small file for each peer; each does what `benchmarks/local/ours.py` does, its own way."""
