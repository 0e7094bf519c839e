"""The stage that traces of the relay core are played on: commands in words, effects in words.

One core, at a node called `me`; the others are letters, and `o` is the owner. An answer repeats the
newest request that was sent to who answers, unless it is `late`. Ticks come by command; that they
are armed again is not told. A piece is `start..end`, of ten bytes
unless `size` says otherwise.
"""

from __future__ import annotations

from hocket.core.relay import events, messages
from hocket.core.relay.messages import Piece
from hocket.core.relay.relay import Relay
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm
from hocket.model import PartitionId

PARTITION_ID = PartitionId("news", 0)


def contact(name):
    """`b` at the position of its letter; `b2` is its second life."""
    life = int(name[1:] or 1) if name != "me" else 1
    letter = name[0]
    position = 13 if name == "me" else ord(letter) - ord("a") + 1
    return Contact(position * 1_000, "me" if name == "me" else letter, life, letter)


def name_of(who):
    return who.node + (str(who.incarnation) if who.incarnation > 1 else "")


def piece(word, size):
    start, end = map(int, word.split(".."))
    return Piece(start, end, bytes(size))


class Script:
    def __init__(self):
        self._relay()

    def carry_out(self, line):
        words, options = [], {}
        for word in line.split():
            name, found, value = word.partition("=")
            if found:
                options[name] = int(value) if value.lstrip("-").isdecimal() else value
            else:
                words.append(word)
        command = getattr(self, "_" + words[0].replace("-", "_"))
        return command(*words[1:], **options) or []

    # --- commands --------------------------------------------------------------------------------

    def _relay(self, **settings):
        self.requests = {}  # the newest to each
        self.older = {}  # the one before
        self.token = self.reading = 0
        self.relay = Relay(contact("me"), PARTITION_ID, RelaySettings(**settings))

    def _consume(self, number, offset, credit=1_000):
        return self._step(events.Consume(int(number), int(offset), credit))

    def _credit(self, number, count):
        return self._step(events.Credit(int(number), int(count)))

    def _stop(self, number):
        return self._step(events.StopConsuming(int(number)))

    def _route(self, *names):
        return self._step(events.RouteIs(tuple(map(contact, names)), self.token))

    def _no_route(self):
        return self._step(events.NoRoute(self.token))

    def _own(self, start, end, leads=1):
        return self._step(events.Owning(int(start), int(end), leads=bool(leads)))

    def _advanced(self, start, end):
        return self._step(events.Advanced(int(start), int(end)))

    def _disown(self):
        return self._step(events.Disowned())

    def _read(self, *pieces, size=10):
        return self._step(events.LogRead(self.reading, tuple(piece(word, size) for word in pieces)))

    def _tick(self, times="1"):
        return [line for _ in range(int(times)) for line in self._step(events.Due(("tick", 0)))]

    def _time_over(self, timer):
        return self._step(events.Due((timer, 0)))

    def _died(self, name):
        return self._step(events.Died(contact(name)))

    def _stalled(self):
        return self._step(events.Stalled())

    def _renewed(self, name):
        return self._step(events.Renewed(contact("me")._replace(incarnation=int(name))))

    def _state(self):
        relay = self.relay
        return [
            f"parent {name_of(relay.parent) if relay.parent else 'none'}, children "
            f"{' '.join(name_of(each) for each in relay.children.contacts) or 'none'}, window "
            f"{relay.recent.start}..{relay.recent.end}, end {relay.committed.end}"
        ]

    # --- what others say -------------------------------------------------------------------------

    def _late(self, sender, *words, **options):
        return self._hear(sender, *words, requests=self.older, **options)

    def _hear(self, sender, what, *words, requests=None, **options):
        who = contact(sender)
        request = (self.requests if requests is None else requests).get(who.node, 0)
        message = getattr(self, "_say_" + what.replace("-", "_"))(request, *words, **options)
        return self._step(events.Heard(who, message))

    def _say_attached(self, request, ancestors=""):
        return messages.Attached(request, PARTITION_ID, self._ancestors(ancestors))

    def _say_redirect(self, request, to):
        return messages.Redirect(request, PARTITION_ID, contact(to))

    def _say_not_relaying(self, request):
        return messages.NotRelaying(request, PARTITION_ID)

    def _say_not_attached(self, request):
        return messages.NotAttached(request, PARTITION_ID)

    def _say_behind(self, request, first):
        return messages.Behind(request, PARTITION_ID, int(first))

    def _say_fetched(self, request, *pieces, end, ancestors="", room=0, total=0, size=10, rooted=1):
        return messages.Fetched(
            request,
            PARTITION_ID,
            tuple(piece(word, size) for word in pieces),
            end,
            self._ancestors(ancestors),
            room,
            total,
            bool(rooted),
        )

    def _say_move_up(self, request, to):
        return messages.MoveUp(PARTITION_ID, contact(to))

    def _say_detach(self, request):
        return messages.Detach(PARTITION_ID)

    def _say_attach(self, _, request, offset=0, consumers=1, redirects=0, avoid=""):
        avoided = tuple(contact(name) for name in str(avoid).split(",") if name)
        return messages.Attach(int(request), PARTITION_ID, offset, consumers, redirects, avoided)

    def _say_fetch(self, _, request, offset, credit=100, wait=1_000_000, consumers=1, old=0):
        return messages.Fetch(
            int(request), PARTITION_ID, int(offset), credit, wait, consumers, bool(old)
        )

    def _ancestors(self, text):
        if not text:
            return self.relay.ancestors
        return tuple(contact(name) for name in text.split(","))

    # --- effects in words ------------------------------------------------------------------------

    def _step(self, event):
        lines = [self._said(effect) for effect in self.relay.step(event)]
        return [line for line in lines if line]

    def _said(self, effect):
        if isinstance(effect, events.Send):
            return f"to {name_of(effect.to)}: {self._message(effect.to, effect.message)}"
        if isinstance(effect, Arm):
            return "" if effect.timer[0] == "tick" else f"arm {effect.timer[0]}"
        if isinstance(effect, Disarm):
            return f"disarm {effect.timer[0]}"
        if isinstance(effect, events.Deliver):
            return f"deliver {effect.consumer} {_ranges(effect.pieces)}, end {effect.end}"
        if isinstance(effect, events.Lost):
            return f"lost {effect.consumer} before {effect.first}"
        if isinstance(effect, events.FindRoute):
            self.token = effect.token
            return "find the route"
        if isinstance(effect, events.ReadLog):
            self.reading = effect.token
            return f"read {effect.offset}..{effect.end}, at most {effect.bytes_max} bytes"
        return "idle"

    def _message(self, to, message):
        if isinstance(message, messages.Attach | messages.Fetch):
            self.older[to.node] = self.requests.get(to.node, 0)
            self.requests[to.node] = message.request
        if isinstance(message, messages.Attach):
            avoid = "".join(f", not {name_of(each)}" for each in message.avoid)
            sent = f", sent on {message.redirects} times" if message.redirects else ""
            return f"attach at {message.next_offset} for {message.consumers}{sent}{avoid}"
        if isinstance(message, messages.Fetch):
            old = "old " if message.catching_up else ""
            return f"fetch {old}from {message.offset}, {message.credit_bytes} bytes"
        if isinstance(message, messages.Fetched):
            got = _ranges(message.pieces) or "nothing"
            return (
                f"{message.request} fetched {got}, end {message.end}, "
                f"below {_names(message.ancestors)}{'' if message.is_rooted else ' without root'}, "
                f"room {message.room}"
            )
        if isinstance(message, messages.Attached):
            return f"{message.request} attached below {_names(message.ancestors)}"
        if isinstance(message, messages.Behind):
            return f"{message.request} behind {message.first}"
        if isinstance(message, messages.Redirect | messages.MoveUp):
            return f"{type(message).__name__.lower()} {name_of(message.to)}"
        return type(message).__name__.lower()


def _ranges(pieces):
    return " ".join(f"{each.start}..{each.end}" for each in pieces)


def _names(contacts):
    return ",".join(name_of(each) for each in contacts)
