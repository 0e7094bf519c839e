"""The blocking faces. All but `connecting` are generated: see `tools/blocking_faces.py`."""
