"""What tests of RPC stand on: a served world, sinks, and a client that dies on purpose."""
