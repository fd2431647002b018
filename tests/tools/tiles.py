#!/usr/bin/env python3
"""tiles DIR FIRST [COUNT]: makes random sets of netCDF files, one for each process of a model. Set N, with the seed FIRST + N, is
DIR/N with the joined name out.nc, and DIR/N.expected.nc is the file that a reader must see.

The tested reader plays no part in the expectation: each set is cut from whole arrays by the rules of
docs/formats/netcdf-tiles.md. Needs the packages netCDF4 and numpy.
"""
import os
import random
import sys

import netCDF4
import numpy as np

CLASSIC = ["i1", "S1", "i2", "i4", "f4", "f8"]
ALL = CLASSIC + ["u1", "u2", "u4", "i8", "u8"]
TEXTS = ["m s-1", "größer", "a\nb", "x" * 100, " "]
FAMILIES = ["fms", "nemo", "roms", "mitgcm"]


class Dim:
    """A dimension. `spans`: for each member the first point, the points, and the halo before and after them, or None where it is not
    decomposed."""

    def __init__(self, name, length, spans=None, unlimited=False):
        self.name, self.length, self.spans, self.unlimited = name, length, spans, unlimited

    def of(self, member):
        """First point in the whole, points, and halo before and after."""
        return self.spans[member] if self.spans else (0, self.length, 0, 0)


def cuts(pick, parts, least=1, most=5):
    """Lengths of parts, and where they begin."""
    sizes = [pick.randint(least, most) for _ in range(parts)]
    return sizes, [sum(sizes[:n]) for n in range(parts)]


class Set:
    def __init__(self, seed):
        self.pick = pick = random.Random(seed)
        self.family = pick.choice(FAMILIES)
        self.format = pick.choice(["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
        if self.family != "mitgcm" and pick.random() < 0.5:
            self.format = pick.choice(["NETCDF4", "NETCDF4_CLASSIC"])
        self.is_nc4 = self.format.startswith("NETCDF4")
        self.nx, self.ny = pick.randint(1, 4), pick.randint(1, 3)
        if self.nx * self.ny == 1:
            self.nx = 2
        self.grid = [(x, y) for y in range(self.ny) for x in range(self.nx)]
        self.removed, self.ids, self.more = set(), None, {}
        getattr(self, self.family)()
        kept = [n for n in range(len(self.grid)) if n not in self.removed]
        self.members = kept
        has_time = pick.random() < 0.8
        records = pick.randint(1, 4)
        self.time = Dim("time" if self.family != "mitgcm" else "T", records, unlimited=pick.random() < 0.85) if has_time else None
        self.levels = Dim("lev" if self.family != "mitgcm" else "Z", pick.randint(1, 3))
        self.records = {n: records for n in kept}
        if has_time and self.time.unlimited and pick.random() < 0.25:
            self.records = {n: pick.randint(1, records) for n in kept}
            self.time.length = max(self.records.values())
        others = [self.levels] + ([self.time] if has_time else [])
        self.dims = self.decomposed + others
        pick.shuffle(self.dims)
        if self.ids:
            self.ids = [1 + self.dims.index(d) for d in self.decomposed]
        self.variables = [self.variable(n) for n in range(pick.randint(1, 6))]
        if self.family == "fms":
            self.variables = [self.axis(d) for d in self.decomposed] + self.variables
        pick.shuffle(self.variables)
        self.attributes = {"title": pick.choice(TEXTS), "k": np.array([1, 2], pick.choice(["i4", "f4", "f8", "i2"]))}

    # --- families: dimensions, names, attributes ---

    def fms(self):
        pick = self.pick
        (wide, left), (high, low) = cuts(pick, self.nx), cuts(pick, self.ny)
        span = lambda sizes, begins, axis, more: [(begins[g[axis]], sizes[g[axis]] + more, 0, 0) for g in self.grid]
        self.decomposed = [Dim("xt", sum(wide), span(wide, left, 0, 0)), Dim("yt", sum(high), span(high, low, 1, 0))]
        for name, sizes, begins, axis in (("xq", wide, left, 0), ("yq", high, low, 1)):
            if pick.random() < 0.4:
                more = pick.randint(0, 1)
                self.decomposed.append(Dim(name, sum(sizes) + more, span(sizes, begins, axis, more)))
        self.first = pick.choice([1, 1, 41])
        self.number = pick.choice([0, 0, 37])
        if pick.random() < 0.4:
            count = pick.randint(1, len(self.grid) - 1)
            self.removed = set(pick.sample(range(len(self.grid)), count))

    def nemo(self):
        pick = self.pick
        (wide, left), (high, low) = cuts(pick, self.nx), cuts(pick, self.ny)
        halo = pick.choice([0, 0, 1, 2])
        whole = (sum(wide), sum(high))
        def spans(sizes, begins, axis):
            found = []
            for g in self.grid:
                at, size = begins[g[axis]], sizes[g[axis]]
                before = min(halo, at)
                after = halo if pick.random() < 0.3 else min(halo, whole[axis] - at - size)
                found.append((at - before, before + size + after, before, after))
            return found
        self.decomposed = [Dim("x", whole[0], spans(wide, left, 0)), Dim("y", whole[1], spans(high, low, 1))]
        self.ids = True
        if pick.random() < 0.4 and len(self.grid) > 2:
            gone = pick.randint(1, len(self.grid) - 2)
            removed = set(pick.sample(range(len(self.grid)), gone))
            # Numbers have no gaps: processes over land have none.
            keep = [n for n in range(len(self.grid)) if n not in removed]
            self.grid = [self.grid[n] for n in keep]
            for d in self.decomposed:
                d.spans = [d.spans[n] for n in keep]

    def roms(self):
        pick = self.pick
        (wide, left), (high, low) = cuts(pick, self.nx, 2), cuts(pick, self.ny, 2)
        self.is_new = pick.random() < 0.6
        def spans(sizes, begins, axis, stagger):
            found = []
            for g in self.grid:
                at, size = begins[g[axis]], sizes[g[axis]]
                if stagger:
                    at, size = (0, size - 1) if at == 0 else (at - 1, size)
                found.append((at, size, 0, 0))
            return found
        self.decomposed = []
        for name, sizes, begins, axis, stagger in (("xi_rho", wide, left, 0, 0), ("xi_u", wide, left, 0, 1), ("eta_rho", high, low, 1, 0), ("eta_v", high, low, 1, 1)):
            if name.endswith("rho") or pick.random() < 0.6:
                self.decomposed.append(Dim(name, sum(sizes) - stagger, spans(sizes, begins, axis, stagger)))
        self.starts = [(left[x] + 1, low[y] + 1) for x, y in self.grid]
        if self.is_new and pick.random() < 0.4 and len(self.grid) > 2:
            removed = pick.randint(0, len(self.grid) - 1)
            keep = [n for n in range(len(self.grid)) if n != removed]
            self.grid = [self.grid[n] for n in keep]
            self.starts = [self.starts[n] for n in keep]
            for d in self.decomposed:
                d.spans = [d.spans[n] for n in keep]
            self.more = {"ij_nodes": np.array([self.nx, self.ny], "i4"), "globaldims": np.array([sum(wide), sum(high)], "i4")}

    def mitgcm(self):
        pick = self.pick
        self.tile = (pick.randint(1, 5), pick.randint(1, 5))
        def spans(axis, more):
            return [(g[axis] * self.tile[axis], self.tile[axis] + more, 0, 0) for g in self.grid]
        whole = (self.nx * self.tile[0], self.ny * self.tile[1])
        self.decomposed = [Dim("X", whole[0], spans(0, 0)), Dim("Y", whole[1], spans(1, 0))]
        for name, axis in (("Xp1", 0), ("Yp1", 1)):
            if pick.random() < 0.5:
                self.decomposed.append(Dim(name, whole[axis] + 1, spans(axis, 1)))

    def name(self, member):
        if self.family == "fms":
            return f"out.nc.{self.number + member:04}"
        if self.family == "nemo":
            return f"out_{member:04}.nc"
        if self.family == "roms":
            return f"out.{member:0{len(str(len(self.grid) - 1))}}.nc"
        return f"out.t{member + 1:03}.nc"

    def own_attributes(self, member):
        """Attributes that only members have, as tuples of name and value."""
        x, y = self.grid[member]
        two = lambda take: np.array([take(d.of(member), d) for d in self.decomposed], "i4")
        if self.family == "fms":
            return {"NumFilesInSet": np.int32(self.nx * self.ny), "filename": "out.nc"}
        if self.family == "nemo":
            return {"DOMAIN_number_total": np.int32(len(self.grid)), "DOMAIN_number": np.int32(member), "DOMAIN_dimensions_ids": np.array(self.ids, "i4"),
                    "DOMAIN_size_global": two(lambda s, d: d.length), "DOMAIN_size_local": two(lambda s, d: s[1]),
                    "DOMAIN_position_first": two(lambda s, d: s[0] + 1), "DOMAIN_position_last": two(lambda s, d: s[0] + s[1]),
                    "DOMAIN_halo_size_start": two(lambda s, d: s[2]), "DOMAIN_halo_size_end": two(lambda s, d: s[3]), "DOMAIN_type": "BOX"}
        if self.family == "roms":
            new = [member, len(self.grid), *self.starts[member]]
            return {"partition": np.array(new if self.is_new else [x, y, self.nx, self.ny], "i4"), **self.more}
        given = {"tile_number": member + 1, "bi": 1, "bj": 1, "sNx": self.tile[0], "sNy": self.tile[1], "OLx": 2, "OLy": 2, "nSx": 1, "nSy": self.ny,
                 "nPx": self.nx, "nPy": 1, "Nx": self.nx * self.tile[0], "Ny": self.ny * self.tile[1], "Nr": self.levels.length}
        return {name: np.int32(value) for name, value in given.items()}

    def goes(self, name):
        gone = {"fms": ("NumFilesInSet",), "nemo": tuple(n for n in self.own_attributes(0) if n.startswith("DOMAIN_")),
                "roms": ("partition",), "mitgcm": ("tile_number", "bi", "bj")}
        return name in gone[self.family]

    # --- variables ---

    def axis(self, dim):
        return {"name": dim.name, "kind": "f8", "dims": [dim], "attributes": {}, "fill": None, "values": np.arange(dim.length) * 0.5, "axis": dim, "storage": {}, "unwritten": set()}

    def variable(self, number):
        pick = self.pick
        kind = pick.choice(ALL if self.format in ("NETCDF4", "NETCDF3_64BIT_DATA") else CLASSIC)
        xs = [d for d in self.decomposed if d.name[0] in "xX"]
        ys = [d for d in self.decomposed if d.name[0] in "yYe"]
        dims = [d for d in (self.time, self.levels) if d and pick.random() < 0.6]
        shape = pick.random()
        if shape < 0.75:
            dims += [pick.choice(ys), pick.choice(xs)]
            if shape < 0.15 and self.family in ("fms", "mitgcm"):
                dims[-2:] = dims[:-3:-1]
        elif shape < 0.85 and self.family != "roms":
            dims += [pick.choice(xs + ys)]
        if not self.is_nc4:
            # The record dimension comes first.
            dims.sort(key=lambda d: not d.unlimited)
        attributes = {"units": pick.choice(TEXTS)} if pick.random() < 0.5 else {}
        value = lambda of: np.array(pick.randint(-9, 9) if of[0] != "u" else pick.randint(0, 9), of)
        fill = None
        if kind != "S1":
            if pick.random() < 0.4:
                fill = value(kind)
            if pick.random() < 0.4:
                attributes["missing_value"] = value(kind if pick.random() < 0.7 else "f8")
        size = [d.length for d in dims]
        whole = np.random.default_rng(pick.randint(0, 1 << 30)).integers(0, 100, size)
        values = whole.astype("u1").view("S1").reshape(size) if kind == "S1" else whole.astype(kind)
        storage = {}
        if self.is_nc4 and dims:
            if pick.random() < 0.6:
                storage = {"compression": "zlib", "shuffle": pick.random() < 0.5, "fletcher32": pick.random() < 0.3}
            if pick.random() < 0.6:
                storage["chunks"] = pick.randint(0, 1 << 30)
        is_sparse = kind != "S1" and pick.random() < 0.15
        unwritten = {n for n in self.members if is_sparse and pick.random() < 0.3}
        return {"name": f"v{number}", "kind": kind, "dims": dims, "attributes": attributes, "fill": fill, "values": values, "axis": None, "storage": storage, "unwritten": unwritten}

    def gap(self, variable):
        """The value of elements that no member has (8.4)."""
        kind = np.dtype(variable["kind"])
        for value in (variable["fill"], variable["attributes"].get("missing_value")):
            if value is not None and value.dtype == kind:
                return value
        return np.zeros((), kind)

    def default(self, variable):
        """The value of elements that a member has not written."""
        return variable["fill"] if variable["fill"] is not None else np.array(netCDF4.default_fillvals[variable["kind"]], variable["kind"])

    def write(self, path):
        whole = {}
        for v in self.variables:
            whole[v["name"]] = np.full(v["values"].shape, self.gap(v), v["kind"])
        os.mkdir(path)
        for member in self.members:
            self.write_member(path, member, whole)
        first = self.members[0]
        with netCDF4.Dataset(path + ".expected.nc", "w") as out:
            for d in self.dims:
                out.createDimension(d.name, None if d.unlimited else d.length)
            own = {**self.own_attributes(first), **self.attributes}
            for name, value in own.items():
                if not self.goes(name):
                    self.put_attribute(out, name, self.stored(value))
            for v in self.variables:
                made = out.createVariable(v["name"], v["kind"], [d.name for d in v["dims"]], fill_value=v["fill"])
                for name, value in v["attributes"].items():
                    self.put_attribute(made, name, self.stored(value))
                self.put(made, whole[v["name"]])

    def stored(self, value):
        """As the members have it: netCDF4-python makes a string of a text that is not ASCII where the format has strings."""
        return value.encode() if isinstance(value, str) and self.format != "NETCDF4" else value

    @staticmethod
    def put_attribute(to, name, value):
        to.setncattr(name, value)

    @staticmethod
    def put(variable, values):
        variable.set_auto_maskandscale(False)
        variable.set_auto_chartostring(False)
        if values.size:
            variable[...] = values

    def chunks(self, v, sizes, seed):
        pick = random.Random(seed)
        return [1 if d.unlimited else pick.randint(1, max(1, size)) for d, size in zip(v["dims"], sizes)]

    def write_member(self, path, member, whole):
        with netCDF4.Dataset(f"{path}/{self.name(member)}", "w", format=self.format) as out:
            for d in self.dims:
                out.createDimension(d.name, None if d.unlimited else d.of(member)[1])
            for name, value in {**self.own_attributes(member), **self.attributes}.items():
                self.put_attribute(out, name, value)
            made = []
            for v in self.variables:
                sizes = [self.records[member] if d is self.time else d.of(member)[1] for d in v["dims"]]
                storage = dict(v["storage"])
                if "chunks" in storage:
                    storage["chunksizes"] = self.chunks(v, sizes, storage.pop("chunks") + member)
                variable = out.createVariable(v["name"], v["kind"], [d.name for d in v["dims"]], fill_value=v["fill"], **storage)
                for name, value in v["attributes"].items():
                    self.put_attribute(variable, name, value)
                if v["axis"]:
                    at, size, _, _ = v["axis"].of(member)
                    s = self.first
                    numbers = [s, s + v["axis"].length - 1, s + at, s + at + size - 1]
                    variable.setncattr("domain_decomposition", np.array(numbers, "i4"))
                made.append((v, variable, sizes))
            for v, variable, sizes in made:
                self.put_part(v, variable, sizes, member, whole[v["name"]])

    def put_part(self, v, variable, sizes, member, whole):
        inner, outer, get = [], [], []
        for d, size in zip(v["dims"], sizes):
            at, _, before, after = d.of(member)
            count = size - before - after
            inner.append(slice(before, before + count))
            outer.append(slice(at + before, at + before + count))
        values = np.full(sizes, 77, "u1").view("S1").reshape(sizes) if v["kind"] == "S1" else np.full(sizes, 77, v["kind"])
        values[tuple(inner)] = v["values"][tuple(outer)]
        if member in v["unwritten"] and not any(d.unlimited for d in v["dims"]):
            values = np.full(sizes, self.default(v), v["kind"])
        else:
            self.put(variable, values)
        self.into_whole(v, values, inner, outer, member, whole)

    def into_whole(self, v, values, inner, outer, member, whole):
        if any(d.spans for d in v["dims"]):
            whole[tuple(outer)] = values[tuple(inner)]
        elif self.time in v["dims"] and self.time.unlimited:
            axis = v["dims"].index(self.time)
            done = max((self.records[n] for n in self.members if n < member), default=0)
            for r in range(done, self.records[member]):
                at = tuple(slice(r, r + 1) if n == axis else slice(None) for n in range(len(v["dims"])))
                whole[at] = values[at]
        elif member == self.members[0]:
            whole[...] = values


if __name__ == "__main__":
    path, first = sys.argv[1], int(sys.argv[2])
    for n in range(int(sys.argv[3]) if len(sys.argv) > 3 else 1):
        Set(first + n).write(f"{path}/{n}")
