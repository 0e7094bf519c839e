"""`examples/chat`: three processes that talk by name."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.remote.served import ServedNode

CHAT = Path(__file__).parents[2] / "examples" / "chat" / "chat.py"
PEOPLE = ("ann", "bob", "cid")


def test_three_processes_say_hello_to_each_other():
    with ServedNode() as node:
        environment = os.environ | {"HOCKET_SERVER": f"hocket://{node.address}"}
        running = {
            me: subprocess.Popen(
                [sys.executable, CHAT, me, *(other for other in PEOPLE if other != me)],
                env=environment, stdout=subprocess.PIPE, text=True,
            )
            for me in PEOPLE
        }  # fmt: skip
        for me, process in running.items():
            said, _ = process.communicate(timeout=100)
            assert process.returncode == 0, me
            expected = {f"{me} heard {other}: hello" for other in PEOPLE if other != me}
            assert set(said.splitlines()) == expected
