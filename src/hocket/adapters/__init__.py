"""The real clock, disk, threads and event loop, and the bytes of TCP and TLS."""
