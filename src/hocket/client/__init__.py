"""Clients of the topic broker, blocking and asyncio, with the same names.

    faces        what users hold in their hands: blocking and asyncio
    engines      what drives the cores: threads with a lock, or an asyncio loop
    connection   links to a broker: addresses, TLS, TCP, and within the process

Both kinds of client are thin shells around the same cores, which know no thread, socket, clock or
log: those of `hocket.client_core`.
"""
