"""Plug-ins: found, set, called, and kept from harming the broker."""
