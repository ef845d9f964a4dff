"""`python -m ipagnn` is the command `ipagnn`."""

from ipagnn.apps.cli import main

if __name__ == "__main__":
    main()
