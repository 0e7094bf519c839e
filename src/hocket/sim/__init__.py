"""A simulated world for the broker: clock, network and disk, all from one seed."""
