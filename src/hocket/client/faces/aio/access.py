"""The calls of a client about users, roles and grants."""

from __future__ import annotations

from collections.abc import Iterable

from hocket.client.engines.aio import AioEngine
from hocket.client_core.calls import access as access_calls
from hocket.client_core.timeout import DEFAULT_TIMEOUT
from hocket.model import Decision, RoleDescription, UserDescription


class AsyncAccessCalls:
    """A part of the client: who may do what."""

    _engine: AioEngine

    async def create_user(
        self, name: str, roles: Iterable[str] = (), *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> str:
        """Make a user; returns its token, which cannot be shown again.

        The first user turns access control on, at once and for good, and must have the role
        "admin". Raises NameInUse, UnknownRole.
        """
        return await self._engine.call(access_calls.create_user(name, roles), timeout)

    async def renew_token(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> str:
        """Give a user a new token. The old one is void, and its connections are closed."""
        return await self._engine.call(access_calls.renew_token(name), timeout)

    async def delete_user(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Remove a user; its connections are closed at once. The last admin cannot be deleted."""
        await self._engine.call(access_calls.delete_user(name), timeout)

    async def set_roles(
        self, name: str, roles: Iterable[str], *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """Give a user these roles in place of those it has. It is effective at once."""
        await self._engine.call(access_calls.set_roles(name, roles), timeout)

    async def create_role(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Make a role, which permits nothing yet. Raises NameInUse."""
        await self._engine.call(access_calls.create_role(name), timeout)

    async def delete_role(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Remove a role. Users who have it lose it."""
        await self._engine.call(access_calls.delete_role(name), timeout)

    async def grant(
        self,
        role: str,
        action: str,
        topic: str = "*",
        index: str = "*",
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Permit an action on the topics, and their indexes, whose names match.

        Actions are publish, subscribe, create, alter, delete and admin, which implies the others.
        In a pattern `*` is any run of characters.
        """
        await self._engine.call(access_calls.grant(role, action, topic, index), timeout)

    async def revoke(
        self,
        role: str,
        action: str,
        topic: str = "*",
        index: str = "*",
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Take a grant back, given as it was granted. What it kept open ends at once."""
        await self._engine.call(access_calls.revoke(role, action, topic, index), timeout)

    async def access(
        self, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> tuple[list[UserDescription], list[RoleDescription]]:
        """All users and all roles. Without users access control is off."""
        return await self._engine.call_paged(access_calls.access(), timeout)

    async def can(
        self,
        user: str,
        action: str,
        topic: str,
        index: str | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Decision:
        """Whether a user may do this, and why. A user may ask about itself."""
        return await self._engine.call(access_calls.can(user, action, topic, index), timeout)
