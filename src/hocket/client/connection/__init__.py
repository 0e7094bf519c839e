"""Links to a broker: addresses, TLS, TCP, and the broker within this process."""
