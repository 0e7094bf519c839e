"""The links between the nodes of a cluster: the real `ports.Links`."""
