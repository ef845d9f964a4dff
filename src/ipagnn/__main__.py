"""`python -m ipagnn` is the command `ipagnn`."""

import sys

from ipagnn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
