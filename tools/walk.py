"""Follow one message through a client and a broker: which functions are called, in which order.

    python tools/walk.py           one line a function, in the order of the first call
    python tools/walk.py --files   the files only, counted

The broker runs in this process, on a thread of its own, and is reached over TCP; what both sides do
for one message is recorded, after one message went before it so that nothing is opened on the way.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

import hocket
from hocket.node.broker import Broker

SOURCE = str(Path(hocket.__file__).parent) + "/"
BROKER = "hocket-broker"
READS = (BROKER, "node/door/tcp_peer.py", "TcpPeer._read")
PUSHED = (BROKER, "node/requests/producing.py", "Producing._push")


class Recorder:
    """Every function of the package that is called while `is_on`, with its thread, once each.

    What the broker does before it reads the message (a tick, the end of a turn) is left out.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.steps: dict[tuple[str, str, str], int] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and self.is_on and frame.f_code.co_filename.startswith(SOURCE):
            file = frame.f_code.co_filename.removeprefix(SOURCE)
            step = (threading.current_thread().name, file, frame.f_code.co_qualname)
            if step == READS and PUSHED not in self.steps:
                self.steps = {each: n for each, n in self.steps.items() if each[0] != BROKER}
            self.steps[step] = self.steps.get(step, 0) + 1


def record(directory: str) -> Recorder:
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    broker = Broker(Path(directory))
    try:
        host, port = broker.listen("127.0.0.1", 0)
        broker.start()
        with hocket.connect(f"hocket://{host}:{port}") as client:
            client.create_topic("walked")
            with (
                client.producer("walked") as producer,
                client.subscribe("walked", index="walker") as sub,
            ):
                messages = iter(sub)
                producer.send(b"the one before")
                producer.flush()
                next(messages).ack()
                sub.commit()
                wait_until_settled(Path(directory))
                recorder.is_on = True
                producer.send(b"the one that is followed")
                producer.flush()
                next(messages)
                recorder.is_on = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        broker.close()
    return recorder


def wait_until_settled(directory: Path) -> None:
    """A new broker sets room aside in the background; those writes are not the message's."""
    for name in ("reserve", "reserve.wal"):
        path = directory / name
        while not path.exists() or not path.stat().st_size:
            time.sleep(0.01)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        steps = record(directory).steps
    files = list(dict.fromkeys(file for _, file, _ in steps))
    if "--files" in sys.argv:
        print(*files, f"{len(files)} files, {len(steps)} functions", sep="\n")
    else:
        for thread, file, function in steps:
            print(f"{thread:16} {file:40} {function}")


if __name__ == "__main__":
    main()
