"""The broker: one driver over the cores (`node`), and the shell that it runs in (`broker`)."""
