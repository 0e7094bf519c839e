"""One contract for every implementation of the queue brokers: DESIGN, section 2, level 2."""
