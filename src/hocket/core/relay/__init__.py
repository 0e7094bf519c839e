"""One node's part in the tree in which the records of a popular partition fan out."""
