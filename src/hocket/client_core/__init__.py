"""PURE rules of a client: events in, effects out. `hocket.client` and tests drive them.

    outbox       what cores want done, and the moment of the turn
    session      the conversation with one node, and which node a request goes to
    producing    records on their way to a broker
    consuming    a subscription with an index of its own
    sharing      a subscription to a shared index
    calls        requests that have one answer, and users' options

Nothing here opens a link, reads a clock, sets a timer, writes to a log, or waits.
"""
