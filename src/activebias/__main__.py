"""`python -m activebias` is the command `activebias`."""

from activebias.cli import main

main()
