"""The version of the package, in a module that imports nothing: every layer may ask for it."""

from __future__ import annotations

__version__ = "0.1.0"
