"""Tests of the pure cores: by plain calls, against naive models, and by traces."""
