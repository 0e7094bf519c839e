"""What a checker is: one sentence that must be true, and the code that looks whether it is."""

from __future__ import annotations

from typing import ClassVar, Literal


class Violation(AssertionError):
    """A sentence that must be true was not."""

    def __init__(self, sentence: str, detail: str) -> None:
        super().__init__(f"not so: {sentence}\n{detail}")
        self.sentence = sentence
        self.detail = detail

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.sentence, self.detail)  # it may cross to another process


class Checker:
    """Looks at the production parts of a cluster, and changes nothing."""

    name: ClassVar[str]  # the file's
    sentence: ClassVar[str]
    # What must have moved for it to look.
    looks_at: ClassVar[Literal["ring", "tree", "metadata", "copies", "clients"]]

    def __init__(self) -> None:
        self.seen = 0  # how often it looked at something real; 0 proves nothing

    def after_event(self) -> None:
        """Something may have changed."""

    def before_healing(self) -> None:
        """Faults have struck for the last time, and what can be mended is about to be."""

    def settled(self) -> None:
        """All is as it should be, and some time passes yet before the end."""

    def at_end(self) -> None:
        """All faults are over, and there was time enough to recover."""

    def broken(self, detail: str) -> Violation:
        return Violation(self.sentence, detail)
