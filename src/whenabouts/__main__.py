"""`python -m whenabouts` is the command `whenabouts`."""

import sys

from whenabouts.product.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
