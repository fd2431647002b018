"""program.py FILE CLOSE [COPY]: writes datasets, attributes and links, flushes after each step; CLOSE: yes, or no: it ends without a close. COPY: the native file after the last flush."""
import os, shutil, sys
import h5py, numpy as np
path, close = sys.argv[1:3]
f = h5py.File(path, "w", libver=("v108", "v108") if len(sys.argv) > 4 else "earliest")
f.attrs["title"] = "an HDF5 program"
g = f.create_group("air")
t = g.create_dataset("temperature", (0, 6), "f4", maxshape=(None, 6), chunks=(2, 6), fillvalue=-1)
t.attrs["units"] = "K"
f["deflated"] = np.arange(40, dtype=">i4").reshape(4, 10)
z = f.create_dataset("zipped", (8, 5), "i2", chunks=(4, 5), compression="gzip", shuffle=True)
s = f.create_dataset("names", (3,), "S7", maxshape=(9,), chunks=(3,))
f["link"] = h5py.SoftLink("/air/temperature")
f.flush()
for step in range(4):
    t.resize(step + 1, axis=0)
    t[step] = np.arange(6) * 0.5 + step
    z[2 * step:2 * step + 2, step:] = step + 1
    s[step % 3] = f"step {step}".encode()
    f.attrs["step"] = step
    f.flush()
if close == "yes":
    f.close()
elif len(sys.argv) > 3 and sys.argv[3] != "-":
    shutil.copy(path, sys.argv[3])
sys.stdout.flush()
os._exit(0)
