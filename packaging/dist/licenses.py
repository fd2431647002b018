#!/usr/bin/env python3
"""licenses.py CARGO TARGET [mpi]: prints what an archive of h5logfs is made of besides h5logfs: the name, version and licence of each
crate that is linked into it for this target, and the texts of these licences; and those of HDF5, zlib and the C parts that crates
carry.

A crate without a licence, or without the text of one, is an error: somebody has to look at it.
"""

import collections
import json
import pathlib
import subprocess
import sys

cargo, target = sys.argv[1:3]
packages = ["h5logfs", "h5logfs-plugin-driver", "h5logfs-plugin-connector"]
features = ["static-hdf5"]
if "mpi" in sys.argv[3:]:
    packages += ["h5logfs-writer", "h5logfs-plugin-connector-mpi"]
    features += ["mpi"]

# Sources of C, by the crate that carries them.
CARRIED = {
    "hdf5-metno-src": [("HDF5", "BSD-3-Clause", "ext/hdf5/LICENSE")],
    "libz-sys": [("zlib", "Zlib", "src/zlib/LICENSE")],
}
NAMES = ("license", "licence", "copying", "copyright", "unlicense", "notice")


def output(*arguments):
    return subprocess.run([cargo, *arguments], check=True, capture_output=True, text=True).stdout


def linked():
    """The names and versions of the crates that are linked: no build scripts, no macros."""
    chosen = [word for package in packages for word in ("-p", package)]
    tree = output("tree", "--locked", *chosen, "--features", ",".join(features), "--target", target, "--edges",
                  "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    return {tuple(line.split()[:2]) for line in tree.splitlines() if line and not line.startswith("h5logfs")}


def texts(directory):
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.name.lower().startswith(NAMES))
    return [path.read_text(errors="replace").strip() for path in files]


metadata = json.loads(output("metadata", "--locked", "--all-features", "--format-version", "1"))
found = {(p["name"], "v" + p["version"]): p for p in metadata["packages"]}
rows, by_text, without = [], collections.defaultdict(list), []
for key in sorted(linked() | {k for k in found if k[0] in CARRIED}):
    package = found[key]
    directory = pathlib.Path(package["manifest_path"]).parent
    name = f"{package['name']} {package['version']}"
    license = package["license"] or f"see {package['license_file']}"
    if not package["license"] and not package["license_file"]:
        sys.exit(f"licenses.py: {name} has no licence")
    rows.append((name, license))
    own = texts(directory)
    if package["license_file"] and not own:
        own = [(directory / package["license_file"]).read_text(errors="replace").strip()]
    for text in own:
        by_text[text].append(name)
    if not own:
        without.append((name, license))
    for carried, its, path in CARRIED.get(package["name"], []):
        rows.append((f"{carried}, in {name}", its))
        by_text[(directory / path).read_text(errors="replace").strip()].append(carried)

rows.append(("the standard library of Rust", "MIT OR Apache-2.0"))
print("What this archive is made of besides h5logfs, which is under MIT or Apache-2.0 (LICENSE).\n")
width = max(len(name) for name, _ in rows)
for name, license in rows:
    print(f"{name:{width}}  {license}")
if without:
    print("\nThe packages of these carry no text of their licence, which is one of the texts below, or of LICENSE-MIT and LICENSE-APACHE:")
    for name, license in without:
        print(f"    {name}: {license}")
for text, names in by_text.items():
    print("\n" + "=" * 78)
    print("\n".join(names))
    print("-" * 78 + "\n")
    print(text)
