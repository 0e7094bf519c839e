"""The parts of the relay core (`core/relay.py`): the tree in which a popular partition fans out."""
