/* The name by which programs include the header of the Log VOL. */
#include <h5logfs_vol_api.h>
