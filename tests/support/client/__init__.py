"""What tests of the client stand on: a scripted link, a scripted server, a model of a broker."""
