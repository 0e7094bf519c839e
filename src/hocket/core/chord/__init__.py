"""The parts of the ring core (`core/ring.py`): what it says, what it hears, what it knows."""
