"""Benchmarks: one runner, one package per suite, one small file per peer.

Run them as `make bench-NAME`.
"""
