"""`python -m activebias` is the command `activebias`."""

from activebias.cli import main

if __name__ == "__main__":
    main()
