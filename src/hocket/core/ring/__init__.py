"""One node's place on the Chord ring: neighbours, routes, lookups, suspicion, beacons."""
