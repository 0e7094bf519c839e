"""Clients of the topic broker, blocking and asyncio, with the same names.

    sync, producer, subscription          for threads, driven by `engine` over links of `tcp`
    aio, aio_producer, aio_subscription   for asyncio, driven by `aio_engine` over `aio_link`
    embedded                              either of them, with a broker in the same process

Both are thin shells around the same cores, which know no thread, socket or clock of their own:
`session` (links, requests), `producer_core` on `pusher` and `lane`, `publish_core`, and
`subscription_core` on `place`.
"""
