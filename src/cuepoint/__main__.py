"""`python -m cuepoint` is the command `cuepoint`."""

import sys

from cuepoint.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
