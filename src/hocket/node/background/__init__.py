"""What a node does unasked: dead letters are brought to their topic, decisions rolled forward."""
