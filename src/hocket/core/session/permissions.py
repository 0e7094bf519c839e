"""Who may send what: one rule for every kind of frame that clients send.

Rule 1: a kind without a rule is not served.
Rule 2: permission comes before existence, so that a refusal tells nothing about what there is.

A handle was permitted when it was opened, and it ends when that permission does; so a frame about a
handle needs no more than the handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hocket import frames
from hocket.core.metadata.access import Access
from hocket.core.metadata.roster import EVERYTHING
from hocket.errors import NotAllowed
from hocket.model import Action, Decision, matches

NO_TOKEN = (
    "this broker asks for a token: connect with token=...; an admin makes one with: "
    "hocket user create NAME --role ROLE"
)

IN_PROCESS = "/"  # owns what clients in the broker's own process use; no user has such a name
_TRUSTED = Decision(True, "it is within the broker's own process")


class Rights:
    """What one session may do. `user` is set when its Hello is answered."""

    __slots__ = ("_access", "trusted", "user")

    def __init__(self, access: Access, *, trusted: bool) -> None:
        self.user = ""  # nobody in particular
        self.trusted = trusted  # by its front door: it may do everything
        self._access = access

    @property
    def owner(self) -> str:
        """Who owns a producer id that the session uses; empty while everybody is the same."""
        if not self._access.is_on:
            return ""
        return IN_PROCESS if self.trusted else self.user

    def decide(self, action: Action, topic: str, index: str = EVERYTHING) -> Decision:
        if self.trusted:
            return _TRUSTED
        if not self.user and self._access.is_on:
            return Decision(False, NO_TOKEN)
        return self._access.judge(self.user, action, topic, index)

    def may(self, actions: Iterable[Action], topic: str, index: str = EVERYTHING) -> bool:
        """Whether any of these actions is allowed."""
        return any(self.decide(action, topic, index).allowed for action in actions)

    def need(self, action: Action, topic: str, index: str = EVERYTHING) -> None:
        decision = self.decide(action, topic, index)
        if not decision.allowed:
            raise NotAllowed(decision.reason)

    def need_to_be_known(self) -> None:
        if not self.trusted and not self.user and self._access.is_on:
            raise NotAllowed(NO_TOKEN)

    def sees(self, topic: str) -> bool:
        """Whether the session may know of this topic: it may by any grant on the topic."""
        return self.trusted or self._access.has_grant(self.user, topic)

    def sees_name(self, name: str) -> bool:
        """Whether the session may know of this name of a broker."""
        return self.trusted or self._access.has_grant(self.user, name, of_names=True)

    def need_to_see(self, topic: str) -> None:
        self.need_to_be_known()
        if not self.sees(topic):
            self.need("subscribe", topic)  # raises; this is the least grant that would be enough

    def need_any(self, actions: Iterable[Action], topic: str | None = None) -> None:
        """One of these actions on the topic (None: on any topic), even if for some indexes only."""
        self.need_to_be_known()
        if self.trusted or not self._access.is_on:
            return
        wanted = (*actions, "admin")
        for _role, grant in self._access.in_force.grants_of(self.user):
            if grant.action in wanted and (topic is None or matches(grant.topic, topic)):
                return
        self.need(wanted[0], EVERYTHING if topic is None else topic)

    def need_admin(self) -> None:
        """The right to change who may do what, judged with the changes on their way.

        A user who is about to lose that right must not be quicker than the change that takes it.
        """
        if self.trusted:
            return
        decision = self._access.leading.explain(self.user, "admin", EVERYTHING)
        if not decision.allowed:
            raise NotAllowed(decision.reason if self.user else NO_TOKEN)
        if self._access.is_in_doubt or self._access.veto is not None:
            self.need("admin", EVERYTHING)


Rule = Callable[[Rights, Any], None]

# Nothing is asked of the sender. Frames that name a handle are the most frequent ones, and the
# handle is the permission: there is not even a call for them.
_everybody: Rule | None = None
_by_handle = _everybody


def _known(rights: Rights, _frame: Any) -> None:
    rights.need_to_be_known()


def _admin(rights: Rights, _frame: Any) -> None:
    rights.need_admin()


def _needs(action: Action) -> Rule:
    return lambda rights, frame: rights.need(action, frame.topic)


def _needs_on_index(action: Action) -> Rule:
    return lambda rights, frame: rights.need(action, frame.topic, frame.index or EVERYTHING)


def _sees_topic(rights: Rights, frame: Any) -> None:
    rights.need_to_see(frame.topic)


OF_INDEXES: tuple[Action, ...] = ("subscribe", "alter", "delete")  # any of them shows an index


def _list_indexes(rights: Rights, frame: frames.ListIndexes) -> None:
    rights.need_any(OF_INDEXES, frame.topic)


def permit_commit(
    rights: Rights, frame: frames.CommitTransaction | frames.NameParticipants
) -> None:
    rights.need_to_be_known()
    if not frame.participants:  # a commit of nothing uses up its id and number all the same
        rights.need_any(("publish",))
    for topic in dict.fromkeys(each.topic for each in frame.participants):
        rights.need("publish", topic)


def _abort_transaction(rights: Rights, _frame: frames.AbortTransaction) -> None:
    rights.need_any(("publish",))


def _explain(rights: Rights, frame: frames.ExplainAccess) -> None:
    if not rights.user or rights.user != frame.user:
        rights.need_admin()


def _needs_on_name(action: Action) -> Rule:
    return lambda rights, frame: rights.need(action, frame.name)


RULES: dict[type, Rule | None] = {
    frames.Hello: _everybody,
    frames.Goodbye: _everybody,
    frames.Ping: _everybody,
    frames.Done: _everybody,
    frames.CreateTopic: _needs("create"),
    frames.AlterTopic: _needs("alter"),
    frames.DeleteTopic: _needs("delete"),
    frames.ListTopics: _known,  # and is shown the topics that any of the user's grants is on
    frames.DescribeTopic: _sees_topic,
    frames.FindOffsets: _sees_topic,
    frames.ListIndexes: _list_indexes,  # and is shown the indexes that the grants are on
    frames.OpenProducer: _needs("publish"),
    frames.Publish: _needs("publish"),
    frames.Push: _by_handle,
    frames.OpenSubscription: _needs_on_index("subscribe"),
    frames.OpenFeed: _needs_on_index("subscribe"),
    frames.SeekIndex: _needs_on_index("subscribe"),
    frames.SkipUnreadable: _needs_on_index("subscribe"),
    frames.Revive: _needs_on_index("subscribe"),
    frames.DeleteMessages: _needs("delete"),
    frames.DeleteIndex: _needs_on_index("delete"),
    frames.Credit: _by_handle,
    frames.Commit: _by_handle,
    frames.Settle: _by_handle,
    frames.CloseHandle: _by_handle,
    frames.CommitTransaction: permit_commit,
    frames.NameParticipants: permit_commit,
    frames.AbortTransaction: _abort_transaction,
    frames.CreateUser: _admin,
    frames.RenewToken: _admin,
    frames.DeleteUser: _admin,
    frames.SetRoles: _admin,
    frames.CreateRole: _admin,
    frames.DeleteRole: _admin,
    frames.AddGrant: _admin,
    frames.RemoveGrant: _admin,
    frames.DescribeAccess: _admin,
    frames.ExplainAccess: _explain,
    frames.DescribeRing: _known,
    frames.LookUpKey: _known,
    frames.ListNodes: _known,
    frames.FindLeaders: _sees_topic,
    frames.DescribeTree: _sees_topic,
    frames.ReadAudit: _admin,
    frames.DescribeCluster: _known,
    frames.SetCluster: _admin,
    frames.DescribePlugins: _admin,
    frames.RegisterName: _needs_on_name("bind"),
    frames.ReleaseName: _known,  # the lease is the permission
    frames.FindName: _needs_on_name("connect"),
    frames.ListNames: _known,  # and is shown the names that any of the user's grants is on
    frames.OpenPipe: _needs_on_name("connect"),
    frames.TakePipe: _known,  # the pipe's number is the permission
}
