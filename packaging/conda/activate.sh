# HDF5 looks for plug-ins in these directories.
export HDF5_PLUGIN_PATH="$CONDA_PREFIX/lib/h5logfs/plugins${HDF5_PLUGIN_PATH:+:$HDF5_PLUGIN_PATH}"
