"""What a hook may answer, and what means nothing. The same within the node and apart from it."""

from __future__ import annotations

from typing import Any

_ANSWERS: dict[str, Any] = {"authenticate": str, "authorize": str, "on_publish": ()}  # besides None


class Nonsense(TypeError):
    """A hook has answered what means nothing, such as True; nobody can tell what was meant."""

    def __init__(self, hook: str, answer: object) -> None:
        wanted = "a text, or None" if _ANSWERS[hook] else "None"
        super().__init__(f"it returned a {type(answer).__name__}; it has to return {wanted}")


def check_answer(hook: str, answer: object) -> None:
    """Raises Nonsense for what a judge must not answer. What others answer is not looked at."""
    if answer is not None and hook in _ANSWERS and not isinstance(answer, _ANSWERS[hook]):
        raise Nonsense(hook, answer)


def words_for(hook: str, error: BaseException) -> str:
    """Of a login only the type of the error: its text may quote the token."""
    if hook == "authenticate" and not isinstance(error, Nonsense):
        return type(error).__name__
    return f"{type(error).__name__}: {error}"
