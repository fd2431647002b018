from collections.abc import Callable
from os import PathLike
from typing import Any, Optional, Union, final

from typing_extensions import Buffer

__all__ = [
    "Changes",
    "Elements",
    "LogError",
    "Objects",
    "OpenFile",
    "Placed",
    "__version__",
    "check_options",
    "is_log",
    "open",
    "source_files",
]

__version__: str

class LogError(OSError):
    """A log that cannot be read, or a part of it. The text names the file, the dataset, the place and the reason."""

@final
class OpenFile:
    """An open log or plain file. Sizes and offsets are in bytes."""

    position: int
    @property
    def is_log(self) -> bool: ...
    @property
    def flush(self) -> Optional[tuple[int, Optional[int], bool]]: ...
    def is_settled(self) -> bool: ...
    def again(self) -> OpenFile: ...
    def is_same(self, other: OpenFile) -> bool: ...
    def size(self) -> int: ...
    def read(self, size: int) -> bytes: ...
    def readinto(self, buffer: Buffer) -> int: ...
    def read_at(self, offset: int, size: int) -> bytes: ...
    def readinto_at(self, offset: int, buffer: Buffer) -> int: ...

@final
class Changes:
    """Notices that a log has changed."""

    def __new__(cls, path: Union[str, bytes, PathLike[str]]) -> Changes: ...
    def look(self) -> bool: ...
    def wait(self, seconds: float) -> bool: ...

def open(path: Union[str, bytes, PathLike[str]], options: str) -> OpenFile: ...
def is_log(path: Union[str, bytes, PathLike[str]], options: str) -> bool: ...
def check_options(options: str) -> None: ...

_Piece = tuple[int, int, int, str]
"""Number of the file, byte offset, bytes, and what they are: "elements", "swapped", "filtered" or "deflated"."""

def source_files(file: OpenFile) -> list[str]: ...

_Described = tuple[Any, ...]
"""A datatype: the name of its class, the bytes of an element, and what else the class has."""

_Link = tuple[str, Optional[int], str, Union[int, str, tuple[str, str], None], Optional[str]]
"""Name, order of creation, "hard", "soft", "external" or "other", what it leads to, and the kind of object behind a hard link."""

@final
class Objects:
    """The objects of one state of a log. Paths begin at the root group."""

    def __new__(cls, file: OpenFile) -> Objects: ...
    def kind(self, path: str) -> Optional[str]: ...
    def links(self, group: str) -> list[_Link]: ...
    def attributes(self, path: str) -> list[tuple[str, _Described, Any, Any]]: ...
    def object(self, path: str) -> Union[Elements, str]: ...
    def datatype(self, path: str) -> _Described: ...

@final
class Elements:
    """A dataset of a log."""

    shape: Optional[list[int]]
    maxshape: Optional[list[Optional[int]]]
    datatype: _Described
    chunks: Optional[list[int]]
    filters: list[tuple[int, list[int]]]
    fill_value: Optional[bytes]
    address: int
    def read(
        self, selection: Any, out: Any, threads: int = 0, progress: Optional[Callable[[int], Any]] = None
    ) -> None: ...
    def values(self) -> list[Any]: ...

@final
class Placed:
    """A dataset whose elements lie outside the metadata of the canonical file."""

    @staticmethod
    def at(objects: Objects, address: int) -> Optional[Placed]: ...
    @property
    def chunk(self) -> list[int]: ...
    @property
    def filters(self) -> list[tuple[int, list[int]]]: ...
    @property
    def fill(self) -> bytes: ...
    def references(self) -> list[tuple[int, Optional[_Piece]]]: ...
    def chunk_bytes(self, chunk: int, filtered: bool) -> bytes: ...
