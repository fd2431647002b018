#!/usr/bin/env python3
"""openpmd make DIR: openpmd-api writes series with its ADIOS2 backend: DIR/NAME/NAME.bp, or several of it.
openpmd same DIR SHOWN: is what SHOWN/NAME/NAME.bp.h5 says to openpmd-api's HDF5 backend what DIR/NAME/NAME.bp says to its ADIOS2
backend? The same of openPMD-viewer, which reads the one with h5py and the other with openpmd-api.
openpmd view DIR LINKS: openPMD-viewer alone. It goes by the ends of names: LINKS/NAME/NAME.bp.h5 becomes a link to the directory.

Prints a line for each difference, and how much was compared; exit status 1 where something differs, or nothing was compared.
"""
import json
import os
import sys

import numpy as np

#: Attributes about the storage of iterations, which differ in HDF5: of the series, and of each object.
STORAGE = {"iterationEncoding", "iterationFormat", "basePath"}
OTHERS = {"date", "snapshot"}
STEPS = [0, 10, 250]
#: Codecs of blosc, each with a kind of shuffling.
BLOSC = {
    "blosclz": "BLOSC_SHUFFLE",
    "lz4": "BLOSC_BITSHUFFLE",
    "lz4hc": "BLOSC_NOSHUFFLE",
    "zlib": "BLOSC_SHUFFLE",
    "zstd": "BLOSC_BITSHUFFLE",
}


def blosc(codec):
    parameters = {"compressor": codec, "doshuffle": BLOSC[codec], "clevel": "7", "blocksize": "2048"}
    return json.dumps({"adios2": {"dataset": {"operators": [{"type": "blosc", "parameters": parameters}]}}})


def encodings(io):
    """Encoding of iterations, file names, and options, by the name of the series. The viewer takes digits in a name for an
    iteration."""
    encoding = io.Iteration_Encoding
    series = {
        "group": (encoding.group_based, "group.bp", "{}"),
        "variable": (encoding.variable_based, "variable.bp", "{}"),
        "file": (encoding.file_based, "file_%06T.bp", "{}"),
    }
    return series | {codec: (encoding.variable_based, "data.bp", blosc(codec)) for codec in BLOSC}


# --- writing --------------------------------------------------------------------------------------

def put(component, values):
    import openpmd_api as io

    component.reset_dataset(io.Dataset(values.dtype, values.shape))
    component.store_chunk(values, [0] * values.ndim, values.shape)


def make(directory):
    import openpmd_api as io

    numbers = np.random.default_rng(1)
    for name, (encoding, path, config) in encodings(io).items():
        os.mkdir(os.path.join(directory, name))
        series = io.Series(os.path.join(directory, name, path), io.Access.create_linear, config)
        series.iteration_encoding = encoding
        series.author = "Größe & co"
        series.set_attribute("numbers", np.arange(5, dtype="i4"))
        for step in STEPS:
            iteration = series.write_iterations()[step]
            iteration.set_time(0.5 * step).set_dt(0.5).set_time_unit_SI(1e-15)
            write(iteration, numbers, step)
            iteration.close()
        series.close()


def write(iteration, numbers, step):
    import openpmd_api as io

    field = iteration.meshes["E"]
    field.axis_labels = ["y", "x"]
    field.grid_spacing = [0.5, 0.25]
    field.grid_global_offset = [0.0, 1.0]
    field.unit_dimension = {io.Unit_Dimension.M: 1, io.Unit_Dimension.L: 1, io.Unit_Dimension.T: -3, io.Unit_Dimension.I: -1}
    for axis in "xyz":
        component = field[axis]
        component.position = [0.5, 0.0]
        component.unit_SI = 1e9
        values = numbers.normal(size=(40, 30)).round(1)
        # In two blocks.
        component.reset_dataset(io.Dataset(values.dtype, values.shape))
        component.store_chunk(np.ascontiguousarray(values[:25]), [0, 0], [25, 30])
        component.store_chunk(np.ascontiguousarray(values[25:]), [25, 0], [15, 30])
    density = iteration.meshes["rho"]
    density.axis_labels = ["y", "x"]
    density.grid_spacing = [0.5, 0.25]
    density.grid_global_offset = [0.0, 1.0]
    density[io.Mesh_Record_Component.SCALAR].position = [0.0, 0.5]
    put(density[io.Mesh_Record_Component.SCALAR], numbers.normal(size=(40, 30)).round(1).astype("f4"))
    # The number of particles changes.
    count = 100 + step
    electrons = iteration.particles["electrons"]
    for axis in "xy":
        put(electrons["position"][axis], numbers.normal(size=count).round(2))
        offset = electrons["positionOffset"][axis]
        offset.reset_dataset(io.Dataset(np.dtype("f8"), [count]))
        offset.make_constant(0.25)
        put(electrons["momentum"][axis], numbers.normal(size=count).round(2))
    put(electrons["weighting"][io.Record_Component.SCALAR], numbers.random(size=count).astype("f4"))
    put(electrons["id"][io.Record_Component.SCALAR], numbers.integers(0, 1 << 60, size=count, dtype="u8"))
    for constant, number in ("charge", -1.6e-19), ("mass", 9.1e-31):
        component = electrons[constant][io.Record_Component.SCALAR]
        component.reset_dataset(io.Dataset(np.dtype("f8"), [count]))
        component.make_constant(number)


# --- openpmd-api ----------------------------------------------------------------------------------

def attributes(item, path, found):
    for name in item.attributes:
        if name not in OTHERS and (path or name not in STORAGE):
            value = item.get_attribute(name)
            # Users do not distinguish an array of one from a single value.
            value = value if isinstance(value, str) else np.atleast_1d(np.asarray(value)).tolist()
            found[f"{path}@{name}"] = value


def everything(path):
    """Attributes and content of components, by path."""
    import openpmd_api as io

    series = io.Series(path, io.Access.read_linear)
    found, loaded = {}, {}
    attributes(series, "", found)
    for iteration in series.read_iterations():
        at = f"{iteration.iteration_index}"
        attributes(iteration, at, found)
        groups = [(f"{at}/{name}", record) for name, record in iteration.meshes.items()]
        for species, of in iteration.particles.items():
            attributes(of, f"{at}/{species}", found)
            groups += [(f"{at}/{species}/{name}", record) for name, record in of.items()]
        for name, record in groups:
            attributes(record, name, found)
            for axis, component in record.items():
                attributes(component, f"{name}/{axis}", found)
                loaded[f"{name}/{axis}"] = (component.dtype, component.load_chunk())
        iteration.close()
    series.close()
    found.update({name: (str(dtype), values.shape, values.tobytes()) for name, (dtype, values) in loaded.items()})
    return found


def compared(what, ours, theirs):
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            print(f"{what}: {name}: {str(ours.get(name))[:200]}, expected {str(theirs.get(name))[:200]}")
            yield name


# --- openPMD-viewer -------------------------------------------------------------------------------

def seen(directory, backend):
    """What the viewer finds in a directory, by name."""
    from openpmd_viewer import OpenPMDTimeSeries

    series = OpenPMDTimeSeries(directory, backend=backend)
    found = {"iterations": list(series.iterations), "times": [float(t) for t in series.t],
             "fields": series.fields_metadata, "species": series.avail_record_components}
    for iteration in series.iterations:
        for field, of in series.fields_metadata.items():
            for axis in of["avail_components"] or [None]:
                values, about = series.get_field(field, axis, iteration=iteration)
                edges = [float(n) for n in (about.xmin, about.xmax)]
                found[f"{iteration} {field} {axis}"] = (about.axes, edges, values.shape, np.asarray(values).tobytes())
        for species, names in series.avail_record_components.items():
            for name, values in zip(names, series.get_particle(names, species=species, iteration=iteration)):
                found[f"{iteration} {species} {name}"] = (values.shape, np.asarray(values).tobytes())
    return found


def apart(directory, shown, has_api):
    """Number of compared items, and of differences."""
    import openpmd_api as io

    different, items = 0, 0
    for name, (_, path, _) in encodings(io).items():
        theirs, ours = os.path.join(directory, name), os.path.join(shown, name)
        if has_api:
            expected = everything(os.path.join(theirs, path))
            got = everything(os.path.join(ours, f"{path}.h5"))
            different += len(list(compared(f"{name} by openpmd-api", got, expected)))
            items += len(expected)
        expected, got = seen(theirs, "openpmd-api"), seen(ours, "h5py")
        different += len(list(compared(f"{name} by openPMD-viewer", got, expected)))
        items += len(expected)
    return items, different


def link(directory, links):
    for name in os.listdir(directory):
        os.mkdir(os.path.join(links, name))
        for path in os.listdir(os.path.join(directory, name)):
            os.symlink(os.path.join(directory, name, path), os.path.join(links, name, f"{path}.h5"))


def main():
    command, directory, *shown = sys.argv[1:]
    if command == "make":
        return make(directory)
    if command == "view":
        link(directory, *shown)
    items, different = apart(directory, *shown, has_api=command == "same")
    print(f"{items} items, {different} differ")
    return different > 0 or items == 0


if __name__ == "__main__":
    sys.exit(main())
