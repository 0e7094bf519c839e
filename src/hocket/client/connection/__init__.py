"""The link to a broker: addresses, TLS, TCP, the embedded link, and the session over them."""
