"""`python -m hocket.cli` is `hocket`."""

from hocket.cli import main

main()
