from os import PathLike
from typing import Optional, TypedDict, Union

from typing_extensions import Buffer

__version__: str

class LogError(OSError):
    """A log that cannot be read, or a part of it. The text names the file, the dataset, the place and the reason."""

class OpenFile:
    """An open log or plain file. Sizes and offsets are in bytes."""

    position: int
    @property
    def is_log(self) -> bool: ...
    def size(self) -> int: ...
    def read(self, size: int) -> bytes: ...
    def readinto(self, buffer: Buffer) -> int: ...
    def read_at(self, offset: int, size: int) -> bytes: ...
    def readinto_at(self, offset: int, buffer: Buffer) -> int: ...

def open(path: Union[str, bytes, PathLike[str]], options: str) -> OpenFile: ...
def is_log(path: Union[str, bytes, PathLike[str]], options: str) -> bool: ...
def check_options(options: str) -> None: ...

class Dataset(TypedDict):
    """A dataset whose elements lie outside the metadata of the canonical file."""

    address: int
    """Of its object header, as h5py tells it."""
    chunk: list[int]
    filters: list[tuple[int, list[int]]]
    """Numbers and parameters, as HDF5 has them."""
    fill: bytes
    """An element that was never written; nothing for zeros."""

Piece = tuple[int, int, int, str]
"""Number of the file, byte offset, bytes, and what they are: "elements", "swapped", "filtered" or "deflated"."""

def source_files(file: OpenFile) -> list[str]: ...
def datasets(file: OpenFile) -> list[Dataset]: ...
def chunk_references(file: OpenFile, number: int) -> list[tuple[int, Optional[Piece]]]: ...
def chunk(file: OpenFile, number: int, chunk: int, filtered: bool) -> bytes: ...
