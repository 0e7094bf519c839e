"""Pure rules: no I/O, clock, thread, random or logging; events in, effects out."""
