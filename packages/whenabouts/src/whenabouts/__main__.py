"""`python -m whenabouts` is the command `whenabouts`."""

import sys

from whenabouts.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
