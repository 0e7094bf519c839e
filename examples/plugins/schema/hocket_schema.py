"""Messages of a topic fit its JSON schema, or are refused with the path of the fault.

The schema of topic `orders` is `orders.json` in the directory of the settings. Topics without such
a file take everything. A batch is refused as a whole, by its first bad message.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import jsonschema
from jsonschema.protocols import Validator

from hocket.plugins import Publish, Rejected, hook


def _refuse(name: str) -> None:
    """Python would read NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a number of JSON")


class Schema:
    api = 1
    policy = "closed"

    @dataclass
    class Settings:
        directory: Path

    def __init__(self, settings: Settings) -> None:
        self._validators: dict[str, Validator] = {}
        if not settings.directory.is_dir():
            raise ValueError(f"there is no directory '{settings.directory}'")
        for path in sorted(settings.directory.glob("*.json")):
            schema = json.loads(path.read_text())
            kind = jsonschema.validators.validator_for(schema)
            kind.check_schema(schema)
            self._validators[path.stem] = kind(schema)

    @hook
    def on_publish(self, batch: Publish) -> None:
        validator = self._validators.get(batch.topic)
        if validator is None:
            return
        for number, value in enumerate(batch.values):
            try:
                document = json.loads(value, parse_constant=_refuse)
            except (ValueError, RecursionError) as error:
                raise Rejected(f"message {number} is not JSON: {error}") from error
            try:
                fault = jsonschema.exceptions.best_match(validator.iter_errors(document))
            except (ArithmeticError, RecursionError) as error:  # 1e400, or nested too deeply
                raise Rejected(f"message {number} cannot be checked: {error}") from error
            if fault is not None:
                raise Rejected(f"message {number}, {fault.json_path}: {fault.message}")
