"""Where clients come in: connections over TCP, with or without TLS, and within the process."""
