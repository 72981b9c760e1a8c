"""`python -m clew` runs the command `clew` where the scripts folder is not on the path."""

from clew.cli import main

if __name__ == "__main__":
    main()
