"""Rings made by hand, for the checkers of the simulator."""
