"""What one node does in the tree in which the records of a popular partition fan out."""
