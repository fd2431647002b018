"""Makes HDF5 files with all that decides whether the root group has the names of a log.

plain.py DIR SEED COUNT: makes the files DIR/N.marked.h5, which have the names of a layout in the root group, and
DIR/N.plain.h5, which have none.
"""

import random
import sys
from pathlib import Path

import h5py

MARK = "_int_att"
CLASSIC = ["_metadata_log", "_data_log"]
NUMBERS = [0, 1, 3, 7, 8, 9, 10, 40, 40, 200, 600]


def creation_order(group_plist, rng):
    """Tracks the creation order of links, attributes, both or none; both kinds of headers exist with and without."""
    order = h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED
    if rng.random() < 0.5:
        group_plist.set_link_creation_order(order)
    if rng.random() < 0.5:
        group_plist.set_attr_creation_order(order)


def make(path, rng, marks):
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation_order(creation, rng)
    if rng.random() < 0.7:
        creation.set_userblock(rng.choice([0, 512, 4096]))
    else:
        # This is in the superblock extension, which libhdf5 writes only without user blocks.
        creation.set_file_space_strategy(rng.choice([h5py.h5f.FSPACE_STRATEGY_PAGE, h5py.h5f.FSPACE_STRATEGY_FSM_AGGR]),
                                         rng.random() < 0.5, 1)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    latest = h5py.h5f.LIBVER_LATEST
    access.set_libver_bounds(rng.choice([h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_V18, latest]), latest)
    made = h5py.h5f.create(str(path).encode(), fcpl=creation, fapl=access)
    with h5py.File(made) as file:
        attributes = [f"a{n}" for n in range(rng.choice(NUMBERS))]
        if "attribute" in marks:
            attributes.append(MARK)
        links = [f"link{n}" for n in range(rng.choice(NUMBERS))]
        if "links" in marks:
            links += CLASSIC
        elif rng.random() < 0.3:
            links.append(rng.choice(CLASSIC))
        steps = [("attribute", name) for name in attributes] + [("link", name) for name in links]
        rng.shuffle(steps)
        for kind, name in steps:
            if kind == "attribute":
                file.attrs[name] = "text" * rng.choice([1, 1, 1, 40, 2000]) if rng.random() < 0.9 else 7
            elif rng.random() < 0.5:
                file.create_dataset(name, data=range(16))
            elif rng.random() < 0.5:
                file.create_group(name).attrs["below"] = 1
            else:
                file[name] = h5py.SoftLink("/elsewhere")
        # Removals leave gaps, and move names back from an index into the header.
        few = rng.random() < 0.3
        for kind, name in steps:
            if name not in [MARK, *CLASSIC] and few and rng.random() < 0.97:
                if kind == "attribute":
                    del file.attrs[name]
                else:
                    del file[name]


def main():
    directory, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        marks = rng.choice([[], [], ["attribute"], ["links"], ["attribute", "links"]])
        name = "marked" if marks else "plain"
        make(directory / f"{number}.{name}.h5", rng, marks)


main()
