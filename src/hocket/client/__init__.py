"""Clients of the topic broker, blocking and asyncio, with the same names.

    faces        what users hold in their hands: blocking and asyncio
    engines      what drives the cores: threads with a lock, or an asyncio loop
    calls        requests that have one answer, and users' options
    producing    records on their way to a broker
    consuming    a subscription with an index of its own
    sharing      a subscription to a shared index
    connection   links to a broker, and the session over them

Both kinds of client are thin shells around the same cores, which know no thread, socket or clock
of their own: `connection.session`, and the `core` of producing, consuming and sharing.
"""
