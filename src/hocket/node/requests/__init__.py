"""What clients ask for: one file for each kind of request, over the wiring."""
