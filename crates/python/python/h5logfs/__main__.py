"""`python -m h5logfs` and the script `h5logfs`: the program itself."""

import os
import sys

from ._program import program


def main() -> None:
    """Replaces this process by the program h5logfs, with the same arguments."""
    path = program()
    os.execv(path, ["h5logfs", *sys.argv[1:]])


if __name__ == "__main__":
    main()
