"""What a node tells about itself in numbers, for Prometheus: `hocket serve --metrics-listen`.

It is a plug-in of the node, built on the hooks that every plug-in has: it opens a door, and is told
of deliveries. Of what goes on in between, only the node's own meters know.
"""
