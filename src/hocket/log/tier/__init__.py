"""Old segments in another place than the disk: how they go there, and how they are read again.

`place.py` is what the place has to offer, and `tiering.py` decides on the node's thread what goes,
what is fetched and what is removed. `jobs.py` is what other threads do, and `stub.py` the record,
beside the segments that are left, of one that is away.
"""
