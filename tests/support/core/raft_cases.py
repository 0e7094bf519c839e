"""Replays reference cases on the Raft core: scripts of steps, and the state of nodes after each.

    python -m tests.support.core.raft_cases DIRECTORY [NAME ...]

Every `*.jsonl` of the directory holds cases, one a line. The last line that is printed is
`cases: N, agree: M`, and the command fails unless N = M > 0. A case agrees if it does in each of
the orders in which messages may be delivered.

Where our core means something else on purpose, a rule says so. A rule is applied to every case and
names no case:

* `late_reads`: a read that could not be answered in its own step may be answered later, or not at
  all. Our leader asks for confirmations anew with every heartbeat, and drops what it could not
  answer when it steps down; others keep such reads longer or drop them sooner. What is demanded is
  what a caller relies on: never an index below the floor, never two answers.
* `open_role`: where a case leaves the configuration of a node open, it is open, too, whether the
  node is a follower or a learner: that is what its configuration says.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from hocket.core.raft import events
from hocket.core.raft.events import Timer
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.roles import Role
from hocket.core.raft.settings import SECOND, RaftSettings
from tests.support.core.raft_node import Disk, Entry, Envelope, Node, Numbers

ELECTION_US = 2 * SECOND
ROUNDS_MAX = 60  # of heartbeats, until a settled network is demanded

Link = tuple[str, str]
Order = Callable[[list[Link]], Link]  # which of the links with messages delivers next

Step = dict[str, Any]


class Disagreement(AssertionError):
    """The core and a case say different things."""


# --- orders of delivery ---------------------------------------------------------------------------


def oldest_link_first(links: list[Link]) -> Link:
    return links[0]


def last_link_first(links: list[Link]) -> Link:
    return max(links)


def any_link(seed: int) -> Order:
    return Random(seed).choice


def orders() -> list[Order]:
    return [oldest_link_first, last_link_first, any_link(1)]


# --- the network ----------------------------------------------------------------------------------


class Network:
    """Each link delivers in order; what is sent over a closed one is lost at once."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._open: set[Link] = set()
        self._held: dict[Link, deque[Envelope]] = {}
        self._queues: dict[Link, deque[Envelope]] = {}
        self.loses_from = ""  # everything that this node sends
        self.down: set[str] = set()
        self.lost: list[Envelope] = []

    def connect(self, groups: list[str], cut: list[str]) -> None:
        self._open = {(a, b) for group in groups for a in group for b in group if a != b}
        self._open -= {_link(word) for word in cut}

    def hold(self, links: list[str]) -> None:
        for word in links:
            self._held.setdefault(_link(word), deque())

    def release(self, links: list[str]) -> None:
        for word in links:
            self._queues.setdefault(_link(word), deque()).extend(self._held.pop(_link(word), ()))

    def post(self, envelope: Envelope) -> None:
        link = envelope.sender, envelope.to
        if link not in self._open or envelope.sender == self.loses_from or envelope.to in self.down:
            self.lost.append(envelope)
        elif link in self._held:
            self._held[link].append(envelope)
        else:
            self._queues.setdefault(link, deque()).append(envelope)

    def take(self) -> Envelope | None:
        links = [link for link, queue in self._queues.items() if queue]
        return self._queues[self._order(links)].popleft() if links else None


def _link(word: str) -> Link:
    sender, to = word.split(">")
    return sender, to


# --- a case being replayed ------------------------------------------------------------------------


class CaseNode(Node):
    """A node whose disk forgets at once what is cut off, as the cases say."""

    lags = False

    def _carry_out_one(self, effect: events.Effect, now_us: int) -> None:
        super()._carry_out_one(effect, now_us)
        if isinstance(effect, events.Truncate):
            del self.disk.entries[effect.first - 1 :]


class Replay:
    def __init__(self, order: Order) -> None:
        self._network = Network(order)
        self._numbers = Numbers()
        self._now_us = 0
        self._ahead: dict[str, int] = {}  # how far the clock of a node is ahead
        self._disks: dict[str, Disk] = {}
        self._nodes: dict[str, CaseNode | None] = {}
        self._expected: dict[str, dict[str, Any]] = {}
        self._committed = 0
        self._chosen: dict[int, Entry] = {}  # what was committed, by index
        self._leaders: dict[int, str] = {}  # by term
        self._reads: list[tuple[str, str, int]] = []  # node, token, floor: not answered yet
        self._refused = False

    def play(self, case: dict[str, Any]) -> None:
        """Disagreement says at which step, and what."""
        for number, step in enumerate(case["steps"]):
            try:
                self._carry_out(step)
                self._compare(step)
            except AssertionError as error:
                words = {key: value for key, value in step.items() if key != "state"}
                raise Disagreement(f"{case['name']}, step {number}, {words}: {error}") from error

    # --- steps -----------------------------------------------------------------------------------

    def _carry_out(self, step: Step) -> None:
        self._refused = False
        if step["do"] != "settle":
            getattr(self, "_" + step["do"])(step)
        if step["do"] in SETTLING and not step.get("quiet"):
            self._settle()

    def _start(self, step: Step) -> None:
        self._settings = RaftSettings(
            election_us=ELECTION_US,
            idle_us=1 << 60,
            pre_vote=step.get("pre_vote", False),
            check_quorum=step.get("check_quorum", False),
        )
        configuration = Configuration(
            tuple(step.get("voters", "")), learners=tuple(step.get("learners", ""))
        )
        for name in step["nodes"]:
            self._disks[name] = Disk(configuration)
            self._ahead[name] = 0
            self._begin(name)
        self._network.connect([step["nodes"]], [])

    def _begin(self, name: str) -> None:
        self._nodes[name] = CaseNode(
            name, self._disks[name], self._settings, self._numbers, self._network.post,
            self._now(name),
        )  # fmt: skip

    def _now(self, name: str) -> int:
        return self._now_us + self._ahead[name]

    def _node(self, step: Step) -> CaseNode:
        node = self._nodes[str(step["node"])]
        assert node is not None
        return node

    def _connect(self, step: Step) -> None:
        self._network.connect(step.get("groups", []), step.get("cut", []))

    def _hold(self, step: Step) -> None:
        self._network.hold(step["links"])

    def _release(self, step: Step) -> None:
        self._network.release(step["links"])

    def _campaign(self, step: Step) -> None:
        """Its clock runs ahead by an election timeout, for nobody else."""
        node = self._node(step)
        if not node.leads and node.raft.group.has_vote:
            self._ahead[node.name] += ELECTION_US
            self._tell(node, events.Due(Timer.ELECTION))

    def _propose(self, step: Step) -> None:
        node = self._node(step)
        self._quietly(step, node)
        for _ in range(step["count"]):
            if node.raft.takes_entries:
                node.append(1, self._now(node.name))
                self._flush_unless_lagging(node)
        self._network.loses_from = ""

    def _quietly(self, step: Step, node: Node) -> None:
        self._network.loses_from = node.name if step.get("quiet") else ""

    def _lag(self, step: Step) -> None:
        self._node(step).lags = True

    def _flush(self, step: Step) -> None:
        node = self._node(step)
        node.lags = False
        self._flush_unless_lagging(node)

    def _crash(self, step: Step) -> None:
        node = self._node(step)
        self._nodes[node.name] = None
        self._network.down.add(node.name)

    def _restart(self, step: Step) -> None:
        self._network.down.discard(str(step["node"]))
        self._begin(str(step["node"]))

    def _elapse(self, _step: Step) -> None:
        for _ in range(3):
            self._settle()
            self._now_us += ELECTION_US
            for node in self._running():
                if node.leads:
                    for timer in (Timer.TRANSFER, Timer.QUORUM):
                        due_us = node.timers.get(timer, (1 << 62, 0))[0]
                        if due_us <= self._now(node.name):
                            del node.timers[timer]
                            self._tell(node, events.Due(timer))

    def _change(self, step: Step) -> None:
        node = self._node(step)
        self._quietly(step, node)
        voters, learners = tuple(step.get("voters", "")), tuple(step.get("learners", ""))
        self._tell(node, events.Propose(voters, learners, Mode(step["mode"])))
        self._network.loses_from = ""

    def _leave(self, step: Step) -> None:
        node = self._node(step)
        self._quietly(step, node)
        self._tell(node, events.Propose(None))
        self._network.loses_from = ""

    def _transfer(self, step: Step) -> None:
        self._tell(self._node(step), events.Transfer(str(step["to"])))

    def _read(self, step: Step) -> None:
        node = self._node(step)
        self._reads.append((node.name, step["token"], step["floor"]))
        self._tell(node, events.ReadAsked(step["token"]))

    def _compact(self, step: Step) -> None:
        node = self._node(step)
        node.compact(self._now(node.name))

    # --- settling --------------------------------------------------------------------------------

    def _running(self) -> Iterator[CaseNode]:
        return (node for node in self._nodes.values() if node is not None)

    def _tell(self, node: CaseNode, event: events.Event) -> None:
        node.step(event, self._now(node.name))
        self._flush_unless_lagging(node)

    def _flush_unless_lagging(self, node: CaseNode) -> None:
        while not node.lags and node.flush(self._now(node.name)):
            pass
        self._note(node)

    def _deliver(self) -> None:
        while True:
            envelope = self._network.take()
            if envelope is None:
                return
            node = self._nodes[envelope.to]
            if node is None:
                self._network.lost.append(envelope)
            else:
                node.heard(envelope, self._now(node.name))
                self._flush_unless_lagging(node)
            self._tell_of_lost_snapshots()

    def _tell_of_lost_snapshots(self) -> None:
        """As the duty of `Send` says. Other messages are lost without a word."""
        lost, self._network.lost = self._network.lost, []
        for envelope in lost:
            sender = self._nodes[envelope.sender]
            if type(envelope.message).__name__ == "Snapshot" and sender is not None:
                self._tell(sender, events.LinkLost(envelope.to))

    def _settle(self) -> None:
        self._deliver()
        unchanged = rounds = 0
        while unchanged < 2:
            before = self._everything()
            for node in self._running():
                node.beat(self._now(node.name))
            self._deliver()
            unchanged = unchanged + 1 if self._everything() == before else 0
            rounds += 1
            assert rounds < ROUNDS_MAX, "the nodes do not settle"

    def _everything(self) -> Any:
        return [
            (facts_of(node), sorted(p.matched for p in leading.others) if leading else None)
            for node in self._running()
            for leading in [node.raft.leading]
        ]

    # --- what must always hold -------------------------------------------------------------------

    def _note(self, node: CaseNode) -> None:
        group = node.raft.group
        if node.leads:
            leader = self._leaders.setdefault(group.term, node.name)
            assert leader == node.name, f"{leader} and {node.name} lead in term {group.term}"
        for index in range(len(self._chosen) + 1, group.commit + 1):
            self._chosen[index] = node.entries[index - 1]
        if group.commit:
            assert self._chosen[group.commit] == node.entries[group.commit - 1], "another entry"
        self._committed = max(self._committed, group.commit)
        self._refused |= any(
            isinstance(each, events.Refused) and isinstance(each.asked, events.Propose)
            for each in node.answers
        )

    # --- comparing -------------------------------------------------------------------------------

    def _compare(self, step: Step) -> None:
        for names, facts in step["state"].items():
            for name in names:
                self._expect(name, facts)
        self._compare_reads(step)
        for name, node in self._nodes.items():
            self._compare_node(name, node)
        assert self._committed <= step.get("committed", self._committed), "too much is committed"
        assert self._refused == step.get("refused", False), f"refused: {self._refused}"

    def _expect(self, name: str, facts: dict[str, Any]) -> None:
        expected = self._expected.setdefault(name, {"tail": ""})
        for fact, value in facts.items():
            if fact == "log" and value is not None:
                terms = list(expected["log"] or []) if value.startswith("+") else []
                expected["log"] = terms + terms_of(value.removeprefix("+"))
            else:
                expected[fact] = value

    def _compare_node(self, name: str, node: CaseNode | None) -> None:
        expected = self._expected[name]
        if node is None:
            disk = self._disks[name]
            actual: dict[str, Any] = {
                "role": "down", "term": disk.term, "vote": int(disk.vote or 0),
                "log": [each.term for each in disk.entries],
            }  # fmt: skip
        else:
            actual = facts_of(node)
        for fact, value in actual.items():
            wanted = expected.get(fact)
            if fact == "role" and expected.get("conf") is None and wanted in PASSIVE:
                wanted = value if value in PASSIVE else wanted  # rule `open_role`
            if fact == "tail" and wanted is not None:
                wanted = terms_of(wanted)
            assert wanted is None or value == wanted, f"{fact} of {name} is {value}, not {wanted}"

    def _compare_reads(self, step: Step) -> None:
        own = (str(step["node"]), step["token"]) if step["do"] == "read" else None
        answered: list[tuple[str, str, int]] = []
        for node in self._running():
            for answer in node.answers:
                if isinstance(answer, events.ReadReady):
                    token = str(answer.token)
                    answered.append((node.name, token, answer.index))
                    self._match(node.name, token, answer.index)
            node.answers.clear()
        wanted = {(str(node), token, index) for node, token, index in step.get("reads", [])}
        if own is not None:
            mine = {each for each in answered if each[:2] == own}
            assert mine == {each for each in wanted if each[:2] == own}, f"answers: {answered}"

    def _match(self, name: str, token: str, index: int) -> None:
        for at, (node, asked, floor) in enumerate(self._reads):
            if (node, asked) == (name, token):
                assert index >= floor, f"the read {token} is answered with {index}, below {floor}"
                del self._reads[at]
                return
        raise AssertionError(f"{name} was not asked for {token}")


SETTLING = frozenset(
    ["release", "settle", "campaign", "propose", "flush", "elapse", "change", "leave", "transfer",
     "read"]
)  # fmt: skip

PASSIVE = ("follower", "learner")


def facts_of(node: CaseNode) -> dict[str, Any]:
    group = node.raft.group
    flushed = node.flushed
    terms = [each.term for each in node.entries]
    return {
        "term": group.term,
        "vote": int(group.vote or 0),
        "role": role_of(node),
        "lead": int(group.leader or 0),
        "commit": group.commit,
        "log": terms[:flushed],
        "tail": terms[flushed:],
        "conf": words_of(group.configuration),
    }


def role_of(node: Node) -> str:
    group = node.raft.group
    if group.role is Role.FOLLOWER and node.name in group.configuration.learners:
        return "learner"
    return group.role.value.replace("-", "_")


def words_of(configuration: Configuration) -> str:
    words = "".join(configuration.voters)
    if configuration.outgoing:
        words += "&" + "".join(configuration.outgoing)
    if configuration.learners:
        words += " l" + "".join(configuration.learners)
    if configuration.next_learners:
        words += " n" + "".join(configuration.next_learners)
    return words + (" auto" if configuration.leaves_by_itself else "")


def terms_of(words: str) -> list[int]:
    """`1x3 2` is 1, 1, 1, 2."""
    found: list[int] = []
    for word in words.split():
        term, _, count = word.partition("x")
        found += [int(term)] * int(count or 1)
    return found


# --- all cases of a directory ---------------------------------------------------------------------


def cases_of(directory: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(directory.glob("*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines() if line.strip()]


def disagreement(case: dict[str, Any]) -> str:
    """What the core and the case do not agree on; empty if they do."""
    for order in orders():
        try:
            Replay(order).play(case)
        except Disagreement as error:
            return str(error)
    return ""


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(arguments: list[str]) -> int:
    if not arguments:
        _say("name the directory with the cases: make raft-cases CASES=DIR")
        return 2
    directory, names = Path(arguments[0]), arguments[1:]
    cases = [case for case in cases_of(directory) if not names or case["name"] in names]
    agree = 0
    for case in cases:
        different = disagreement(case)
        agree += not different
        if different:
            _say(different)
    _say(f"cases: {len(cases)}, agree: {agree}")
    return 0 if cases and agree == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
