"""The asyncio faces, with the same names."""
