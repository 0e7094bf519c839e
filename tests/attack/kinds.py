"""The kinds of hostile inputs. Each sends one, or more, and raises for a wrong answer.

Each returns how many it has sent. `EACH` and `MASSES` name them.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from hocket import frames
from hocket.core.ring.circle import candidates
from hocket.errors import BY_CODE
from hocket.frames import Frame
from hocket.model import Limits
from hocket.node.links.asking import Refused, ask_one
from hocket.node_frames import NodeHello
from hocket.tickets import KEY_BYTES, LEASE_BYTES
from hocket.wire.batch import BatchInfo, check_entries, encode
from hocket.wire.frame_codec import encode as encode_frame
from hocket.wire.framing import PREFIX
from tests.attack import hostile
from tests.attack.attacker import Attacker, WrongAnswer, frame_bytes, framed
from tests.attack.place import EVES_PIPES, OPEN, PARTITIONS, VICS_NAME, VICTIM, Place

WRONG_TOKENS_IN_A_ROW = 12  # then a right one must get in
NOT_ALLOWED = "notAllowed"


class Assault:
    """The attackers at one place, and what they have counted."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.chance = random.Random(f"{seed}/{place.kind}")
        self.counts: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()  # inputs that the broker has taken, where it may
        self._attacker: Attacker | None = None
        self._thief: Thief | None = None
        self._name_owner: Owner | None = None
        self._lingering: list[Attacker] = []
        self._wrong_tokens = 0

    def close(self) -> None:
        for each in (self._attacker, self._thief, self._name_owner, *self._lingering):
            if each is not None:
                each.close()

    def attacker(self) -> Attacker:
        """One that is still connected, or a new one."""
        if self._attacker is None or self._attacker.gone:
            if self._attacker is not None:
                self._attacker.close()
            self._attacker = Attacker(self.place)
            if not isinstance(self._attacker.welcome, frames.Welcome):
                raise WrongAnswer(f"a right token was refused: {self._attacker.welcome}")
            self._attacker.open_handles()
        return self._attacker

    # --- frames ----------------------------------------------------------------------------------

    def absurd_fields(self) -> int:
        frame = hostile.absurd_frame(self.chance, guarded=self.place.kind.guarded)
        if frame.request:  # its own, since an earlier answer may still wait for the disk
            frame.request = next(self.attacker().requests)
        payload = b""
        if isinstance(frame, frames.Push | frames.Publish):
            payload = hostile.good_batch(self.chance)
        answers = self.attacker().exchange(frame_bytes(frame, payload))
        if self.place.kind.guarded:
            self._check_denied(frame, answers)
        return 1

    def _check_denied(self, frame: Frame, answers: list[tuple[Frame, bytes]]) -> None:
        """What user eve has no right to is refused, whatever else is wrong with it."""
        topic = getattr(frame, "topic", "")
        denied = isinstance(frame, hostile.DESTRUCTIVE) and topic == VICTIM
        if getattr(frame, "index", "").startswith("eve"):
            denied = False  # on the victim's topic she may have indexes of her own
        denied = denied or isinstance(frame, frames.CreateUser | frames.DescribeAccess)
        for answer, _ in answers:
            if denied and answer.request == frame.request and answer.request:
                if getattr(answer, "code", "") != NOT_ALLOWED:
                    raise WrongAnswer(f"{frame} was answered {answer}")
                self.hits["denied"] += 1

    def flipped_bits(self) -> int:
        self.attacker().exchange(framed(hostile.flipped_header(self.chance)))
        return 1

    def redirected_pointers(self) -> int:
        self.attacker().exchange(framed(hostile.redirected_header(self.chance)))
        return 1

    def broken_framing(self) -> int:
        """Lengths and checksums that are not those of the frame."""
        chance = self.chance
        header = encode_frame(chance.choice(hostile.SAMPLES))
        how = chance.choice(["checksum", "huge header", "huge payload", "payload", "garbage"])
        if how == "checksum":
            data = framed(header, crc=chance.getrandbits(32))
            attacker = self.attacker()
            answers = attacker.exchange(data)
            if not attacker.gone:
                raise WrongAnswer(f"a header under a wrong checksum was taken: {answers}")
            return 1
        if how == "huge header":
            data = PREFIX.pack(chance.choice([2**32 - 1, 2**31, (1 << 20) + 8]), 0, 0) + header
        elif how == "huge payload":
            lengths = [2**64 - 1, 2**63, 1 << 40, Limits().frame_bytes_max + 1]
            data = PREFIX.pack(len(header), 0, chance.choice(lengths)) + header
        elif how == "payload":
            data = framed(encode_frame(frames.Ping(1)), chance.randbytes(chance.randrange(1, 50)))
        else:
            data = chance.randbytes(chance.randrange(1, 400))
        attacker = self.attacker()
        attacker.send_and_end(data)
        return 1

    # --- states ----------------------------------------------------------------------------------

    def wrong_order(self) -> int:
        """Frames that may not be sent then, or not by a client, or about what is gone."""
        chance = self.chance
        how = chance.choice(["no hello", "two hellos", "as a server", "after closing"])
        if how in ("no hello", "two hellos"):
            attacker = Attacker(self.place, greets=False)
            hello = frames.Hello(1, token=self.place.tokens["eve"])
            first = chance.choice(hostile.SAMPLES) if how == "no hello" else hello
            found = attacker.send_and_end(frame_bytes(first) + frame_bytes(hello))
            attacker.close()
            kinds = [type(frame) for frame, _ in found]
            if frames.Welcome in kinds and how == "no hello":
                raise WrongAnswer(f"{first} came before Hello, and the answer was {kinds}")
            return 1
        if how == "as a server":
            attacker = self.attacker()
            said = chance.choice(
                [
                    frames.Welcome(1, 1, "node", "software", (), Limits()),
                    frames.PushAcked(0, 1, 0, 5, b""),
                    frames.Published(1, 0, 5),
                    frames.Deliver(0, 2, 0, 0, 5),
                    frames.ProducerOpened(1, 7, bytes(16), 0, 1, bytes(8)),
                    frames.HandleEnded(0, 1, "fenced", "go away"),
                    frames.TokenIssued(1, "hocket_eve_x"),
                ]
            )
            attacker.exchange(frame_bytes(said))
            if not attacker.gone:
                raise WrongAnswer(f"{said} was taken from a client")
            return 1
        attacker = Attacker(self.place)  # a new one: of the other's handles some may be closed
        attacker.open_handles()
        handle = chance.choice([1, 2])
        closing = frame_bytes(frames.CloseHandle(5, handle))
        late = frames.Push(0, 1, 0) if handle == 1 else frames.Credit(0, 2, 1000)
        payload = hostile.good_batch(chance) if handle == 1 else b""
        answers = attacker.exchange(closing + closing + frame_bytes(late, payload) * 2)
        codes = [frame.code for frame, _ in answers if isinstance(frame, frames.Failure)]
        if not attacker.gone and codes != ["unknownHandle"]:
            raise WrongAnswer(f"a handle was closed twice, and the answers were {answers}")
        attacker.close()
        return 1

    def half_frames(self) -> int:
        """A connection that vanishes in the middle of a frame."""
        chance = self.chance
        attacker = Attacker(self.place, greets=chance.random() < 0.8)
        whole = frame_bytes(frames.Publish(1, OPEN, 0), hostile.good_batch(chance) * 3)
        attacker.send(whole[: chance.randrange(1, len(whole))])
        attacker.vanish()
        return 1

    # --- batches ---------------------------------------------------------------------------------

    def hostile_batches(self) -> int:
        chance = self.chance
        make: Callable[..., bytes] = chance.choice(
            [
                hostile.batch_with_an_absurd_header,
                hostile.batch_with_an_absurd_prelude,
                hostile.batch_with_flipped_bits,
                hostile.batch_under_a_wrong_checksum,
                hostile.batch_cut_or_filled_up,
                hostile.entry_of_another_kind,
            ]
        )
        stamp: dict[str, Any] = {}
        if chance.random() < 0.5:
            stamp = {"producer_id": chance.choice([b"p" * 16, chance.randbytes(16)])}
            stamp |= {"epoch": chance.choice([0, 1]), "sequence": chance.choice([0, 1, 5])}
        entry = make(chance, **stamp)
        attacker = self.attacker()
        if chance.random() < 0.3:
            attacker.exchange(frame_bytes(frames.Push(0, 1, 0), entry))
            return 1
        answer = attacker.ask(frames.Publish(0, OPEN, 0), entry)
        stored = isinstance(answer, frames.Published)
        never = (hostile.entry_of_another_kind, hostile.batch_under_a_wrong_checksum)
        if stored and make in never:
            raise WrongAnswer(f"{make.__name__} was stored: {entry.hex()}")
        self.hits["hostile batches stored"] += stored
        return 1

    # --- stolen ids ------------------------------------------------------------------------------

    def stolen_ids(self) -> int:
        if self._thief is None or self._thief.gone:
            self._thief = Thief(self.place)
        code = self._thief.steal(self.chance)
        if self.place.kind.guarded and code != "fenced":
            raise WrongAnswer(f"the producer id of another user was of use: {code or 'stored'}")
        self.hits[f"stolen ids: {code or 'stored'}"] += 1
        return 1

    # --- names of brokers in processes -----------------------------------------------------------

    def stolen_names(self) -> int:
        """A name of somebody else is registered, moved or freed; the owner must keep it."""
        chance, owner = self.chance, self._owner()
        self.attacker().exchange(b"")  # the last input may have made the broker hang up
        attacker = self.attacker()
        lease = chance.choice(
            [owner.lease[: LEASE_BYTES // 2] * 2, bytes(LEASE_BYTES),
             chance.randbytes(LEASE_BYTES),
             owner.lease[:-1], owner.lease + b"x", b""]
        )  # fmt: skip
        key = chance.randbytes(KEY_BYTES)
        kind = chance.choice(["full-event", "mixed", "thread", "", "\0"])
        frame = chance.choice(
            [
                frames.RegisterName(0, VICS_NAME, kind, lease, key, "127.0.0.1:1"),
                frames.ReleaseName(0, VICS_NAME, lease),
                frames.TakePipe(0, chance.choice([lease, chance.randbytes(16), b""])),
            ]
        )
        answer = attacker.ask(frame)
        is_free = isinstance(answer, frames.Done) and not isinstance(frame, frames.ReleaseName)
        if is_free or not isinstance(answer, frames.Failure | frames.Done):
            raise WrongAnswer(f"{frame} was answered {answer}")
        owner.still_has_it()
        self.hits[f"stolen names: {getattr(answer, 'code', 'done')}"] += 1
        return 1

    def _owner(self) -> Owner:
        if self._name_owner is None or self._name_owner.gone:
            self._name_owner = Owner(self.place, self.place.tokens["vic"], VICS_NAME)
        return self._name_owner

    def strange_pipes(self) -> int:
        """Both ends of a pipe are an attacker's: the same end twice, taken twice, bytes that come
        too early, ends that vanish; or no end is taken."""
        chance = self.chance
        owner, caller = Owner(self.place, None, EVES_PIPES), Attacker(self.place)
        ends: list[Attacker] = [owner, caller]
        try:
            how = chance.choice(["itself", "early", "twice", "vanish", "asked again", "untaken"])
            opens = owner if how == "itself" else caller
            opens.send(frame_bytes(frames.OpenPipe(7, EVES_PIPES)))
            found = owner.hear(lambda each: isinstance(each, frames.PipeWanted))
            if not found or not isinstance(wanted := found[-1][0], frames.PipeWanted):
                raise WrongAnswer(f"the owner of a name was told {found}, and not of a pipe")
            takes = owner if how == "itself" else Attacker(self.place)
            ends.append(takes)
            noise = chance.randbytes(chance.choice([1, 100, 70_000]))
            if how == "asked again":
                caller.send(frame_bytes(frames.OpenPipe(8, EVES_PIPES)) * 3)
            if how == "vanish":
                caller.vanish()
            if how != "untaken":
                taking = frame_bytes(frames.TakePipe(9, wanted.pipe))
                early = taking + frame_bytes(frames.Ping(1)) + noise if how == "early" else b""
                takes.send(taking * 2 if how == "twice" else early or taking)
                if how in ("early", "twice", "asked again"):
                    caller.send(noise)
        finally:
            for each in ends:
                each.vanish()
        return 1

    # --- logins ----------------------------------------------------------------------------------

    def logins(self) -> int:
        """Wrong tokens; and after so many of them a right one, which gets in at once."""
        if not self.place.kind.guarded:
            return 0
        chance, right = self.chance, self.place.tokens["eve"]
        if self._wrong_tokens >= WRONG_TOKENS_IN_A_ROW:
            self._wrong_tokens = 0
            attacker = Attacker(self.place, token=right)
            attacker.close()
            if not isinstance(attacker.welcome, frames.Welcome):
                raise WrongAnswer(f"a right token was refused: {attacker.welcome}")
            self.hits["right tokens after wrong ones"] += 1
            return 1
        self._wrong_tokens += 1
        secret = "".join(chance.choice("abcXYZ019_-") for _ in range(43))
        wrong = chance.choice(
            [
                "", "hocket_", right[:-1], right + "x", right[:-1] + "\0", right.upper(),
                f"hocket_eve_{secret}", f"hocket_ann_{secret}", f"hocket_ghost_{secret}",
                f"hocket_{'x' * 255}_{secret}", "x" * 60_000, "\U0001f4a5" * 43,
                "$sha256$" + "0" * 64,
            ]
        )  # fmt: skip
        attacker = Attacker(self.place, token=wrong)
        attacker.close()
        if isinstance(attacker.welcome, frames.Welcome):
            raise WrongAnswer(f"this token has let somebody in: {wrong[:80]!r}")
        return 1

    def false_nodes(self) -> int:
        """Somebody who says that it is a node of the cluster, and is none."""
        chance, place = self.chance, self.place
        is_certified = chance.random() < 0.7  # with the certificate of a client
        stranger = f"{chance.getrandbits(128):032x}"
        hello, code = chance.choice(
            [
                (NodeHello(node=stranger), "wrongNode"),  # it only asks
                (NodeHello(cluster=place.store, node=stranger), "wrongPosition"),
                (NodeHello(cluster=stranger, node=stranger), "wrongCluster"),
                (NodeHello(cluster=place.store, node=place.store, boot=1), "twice"),
            ]
        )
        hello.address = "127.0.0.1:1"
        if place.kind.tls and code != "twice":
            code = "wrongNode"
            hello.position = candidates(hello.node.encode())[0]
        elif code == "wrongNode":
            return 0  # without TLS nobody on this machine is asked for a certificate
        tls = place.node_context(certified=is_certified)
        try:
            found = ask_one("{}:{}".format(*place.address), hello, tls, lambda *_: "")
        except Refused as error:
            if error.reason != code:
                raise WrongAnswer(f"{hello} was refused, but by {error}") from error
        else:
            raise WrongAnswer(f"{hello} was let in, with a client's certificate or none: {found}")
        return 1

    # --- many of a thing -------------------------------------------------------------------------

    def floods(self, opens: int = 20) -> int:
        """Producers and subscriptions, opened and closed without a look at the answers."""
        attacker = self.attacker()
        data = b"".join(
            frame_bytes(
                frames.OpenProducer(n, OPEN)
                if self.chance.random() < 0.7
                else frames.OpenSubscription(n, OPEN, credit_bytes=1000)
            )
            for n in range(1, opens + 1)
        )
        data += b"".join(frame_bytes(frames.CloseHandle(n, n)) for n in range(3, opens + 3))
        attacker.exchange(data)
        return 2 * opens

    def too_many_handles(self) -> int:
        """More than one connection may have."""
        attacker = Attacker(self.place)
        allowed = Limits().handles_max
        answers: list[tuple[Frame, bytes]] = []
        for start in range(0, allowed + 100, 100):
            data = b"".join(
                frame_bytes(frames.OpenProducer(start + n + 1, OPEN)) for n in range(100)
            )
            answers += attacker.exchange(data)
        attacker.close()
        opened = sum(isinstance(frame, frames.ProducerOpened) for frame, _ in answers)
        codes = {frame.code for frame, _ in answers if isinstance(frame, frames.Failure)}
        if (opened, codes) != (allowed, {"limitExceeded"}):
            raise WrongAnswer(f"{opened} handles were opened on one connection; then {codes}")
        return allowed + 100

    def many_connections(self, many: int = 1000) -> int:
        """All at once: some say nothing, some half a Hello, some all of it; then all vanish."""
        found: list[Attacker] = []
        try:
            for number in range(many):
                found.append(Attacker(self.place, greets=number % 2 == 0))
                if number % 4 == 1:
                    found[-1].send(frame_bytes(frames.Hello(1))[:20])
            for each in found[::50]:
                each.exchange(b"")
        finally:
            for each in found:
                each.vanish()
        return many

    def slow_readers(self, many: int = 10) -> int:
        """Consumers that take nothing of what they have asked for; they stay to the end."""
        for _ in range(many):
            reader = Attacker(self.place)
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.ask(frames.OpenSubscription(0, OPEN, credit_bytes=Limits().credit_bytes_max))
            self._lingering.append(reader)
        return many

    def deaf_askers(self, many: int = 3, questions: int = 2000) -> int:
        """They ask and ask, and never hear the answers."""
        data = frame_bytes(frames.DescribeTopic(1, OPEN)) * questions
        for _ in range(many):
            asker = Attacker(self.place)
            asker.socket.settimeout(0.5)  # the broker stops taking what it cannot answer
            with contextlib.suppress(WrongAnswer):
                asker.send(data)
            self._lingering.append(asker)
        return many * questions


class Thief(Attacker):
    """Reads the victim's topic, and publishes as the producers that it finds there."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._newest: dict[int, BatchInfo] = {}  # by partition
        opened = self.ask(
            frames.OpenSubscription(0, VICTIM, "eve-thief", credit_bytes=Limits().credit_bytes_max)
        )
        if not isinstance(opened, frames.SubscriptionOpened):
            raise WrongAnswer(f"eve may read the topic, and was answered {opened}")

    def steal(self, chance: random.Random) -> str:
        """Publish as the victim's producer; the code of the refusal, or nothing."""
        self._read()
        partition = chance.choice(sorted(self._newest))
        info = self._newest[partition]
        epoch, sequence = info.epoch, info.sequence + 1
        how = chance.choice(
            ["next", "next", "next", "again", "many", "later", "epoch", "elsewhere", "stage"]
        )
        if how == "stage":
            return self._stage(chance, partition, info)
        if how == "again":
            sequence = info.sequence
        elif how == "later":
            sequence += chance.choice([1, 5, 2**32, 2**63])
        elif how == "epoch":
            epoch, sequence = epoch + 1, 0
        elif how == "elsewhere":
            partition = (partition + 1) % PARTITIONS
        code = ""
        for number in range(40 if how == "many" else 1):
            code = self._publish(partition, info.producer_id, epoch, sequence + number)
        return code

    def _publish(self, partition: int, producer_id: bytes, epoch: int, sequence: int) -> str:
        batch = encode(
            [b"stolen"], timestamps=1, producer_id=producer_id, epoch=epoch, sequence=sequence
        )
        return self._code(self.ask(frames.Publish(0, VICTIM, partition), bytes(batch)))

    def _stage(self, chance: random.Random, partition: int, info: BatchInfo) -> str:
        """Stage under the victim's id, for a transaction that nobody will ever decide."""
        opening = frames.OpenProducer(
            0, VICTIM, info.producer_id, 0, f"job-{chance.randrange(10**6)}", 1
        )
        answer = self.ask(opening)
        if not isinstance(answer, frames.ProducerOpened):
            return self._code(answer)
        batch = encode([b"staged"], timestamps=1, producer_id=info.producer_id)
        self.exchange(frame_bytes(frames.Push(0, answer.handle, partition), bytes(batch)))
        return ""

    def _code(self, answer: Frame | None) -> str:
        if answer is None:
            raise WrongAnswer("the broker hung up on a proper request")
        if isinstance(answer, frames.Published):
            return ""
        assert isinstance(answer, frames.Failure), answer
        assert answer.code in BY_CODE
        return answer.code

    def _read(self) -> None:
        """What the victim has published since."""
        found = self.exchange(b"")
        while not self._newest or any(isinstance(frame, frames.Deliver) for frame, _ in found):
            for frame, payload in found:
                if isinstance(frame, frames.Deliver):
                    for info in check_entries(payload):
                        if info.header.count and b"stolen" not in payload:
                            self._newest[frame.partition] = info
            found = self.exchange(b"")


class Owner(Attacker):
    """Has the name of a broker in a process."""

    def __init__(self, place: Place, token: str | None, name: str) -> None:
        super().__init__(place, token=token)
        self._name = name
        # Always the same: with it the name of one that vanished is had again at once.
        self.lease = f"{name:>{LEASE_BYTES}}".encode()
        answer = self.ask(frames.RegisterName(0, name, "full-event", self.lease, bytes(KEY_BYTES)))
        if not isinstance(answer, frames.Done):
            raise WrongAnswer(f"the owner of {name!r} asked for its name: {answer}")

    def still_has_it(self) -> None:
        answer = self.ask(frames.FindName(0, self._name))
        if getattr(answer, "lease", b"") != self.lease[: LEASE_BYTES // 2]:
            raise WrongAnswer(f"the name {self._name!r} is not its owner's any more: {answer}")


# How often each is tried, for a hundred inputs or so that are tried one by one.
EACH: dict[str, int] = {
    "absurd_fields": 25,
    "flipped_bits": 12,
    "redirected_pointers": 12,
    "broken_framing": 8,
    "wrong_order": 5,
    "half_frames": 4,
    "hostile_batches": 20,
    "stolen_ids": 8,
    "logins": 6,
    "false_nodes": 6,
    "stolen_names": 8,
    "strange_pipes": 6,
}
# These are tried once, with so many inputs as they have.
MASSES = ["floods", "too_many_handles", "slow_readers", "deaf_askers", "many_connections"]
