"""One log of a topic: its records, its producers, and how far each own index has come in it."""
