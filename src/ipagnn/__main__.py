"""`python -m ipagnn` is the command `ipagnn`."""

import sys

from ipagnn.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
