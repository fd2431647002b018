"""`python -m h5logfs` and the script `h5logfs`: the program itself."""

import os
import sys

from ._program import program


def main() -> None:
    """Becomes the program h5logfs, with the arguments of this one."""
    path = program()
    os.execv(path, ["h5logfs", *sys.argv[1:]])


if __name__ == "__main__":
    main()
