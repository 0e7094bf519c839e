"""What tests of the cores stand on: scripts that traces are played on, models, small worlds."""
