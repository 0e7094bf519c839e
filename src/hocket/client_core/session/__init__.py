"""The conversation with a broker, over one link after another."""
