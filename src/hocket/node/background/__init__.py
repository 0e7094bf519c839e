"""What a node does unasked: dead letters, retention, rolling decided transactions forward."""
