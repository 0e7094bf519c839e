"""The asyncio faces, from which `tools/blocking_faces.py` makes the blocking ones."""
