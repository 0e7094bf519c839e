"""The broker: one driver over the cores (`node`), its wiring, and the shell it runs in (`broker`)."""
