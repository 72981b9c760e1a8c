"""`python -m clew` is the command `clew`, for whoever has no scripts folder on the path."""

from clew.cli import main

if __name__ == "__main__":
    main()
