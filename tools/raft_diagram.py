"""Draw the roles of Raft from the table of the core, as docs/internals/raft.md shows them.

python tools/raft_diagram.py            print the drawing
python tools/raft_diagram.py --write    put it into the page
"""

from __future__ import annotations

import sys
from pathlib import Path

from hocket.core.raft.roles import TABLE, Role

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "raft.md"
BEGIN = "<!-- drawn by tools/raft_diagram.py -->"
END = "<!-- until here -->"


def drawn() -> str:
    """A diagram for Mermaid; what leads from a role to itself is left to the table below it."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_name(Role.FOLLOWER)}"]
    for (role, cause), following in TABLE.items():
        if role is not following:
            lines.append(f"    {_name(role)} --> {_name(following)}: {cause.value}")
    lines += ["```", "", "| role | what happens | becomes |", "| --- | --- | --- |"]
    lines += [f"| {r.value} | {cause.value} | {to.value} |" for (r, cause), to in TABLE.items()]
    return "\n".join(lines)


def _name(role: Role) -> str:
    return role.value.replace("-", "_")


def write(page: Path) -> None:
    before, rest = page.read_text().split(BEGIN, 1)
    _, behind = rest.split(END, 1)
    page.write_text(f"{before}{BEGIN}\n{drawn()}\n{END}{behind}")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write(PAGE)
    else:
        print(drawn())
