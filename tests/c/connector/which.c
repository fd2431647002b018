/* which: prints the file of the plug-in that serves as the connector of this process. */
#include "../hosts/host.h"

#include <dlfcn.h>

int main(void)
{
    char path[] = "/tmp/h5logfs-which-XXXXXX";
    const int descriptor = mkstemp(path);
    REQUIRE(descriptor >= 0 && close(descriptor) == 0);
    setenv("H5LOGFS_MATCH", "", 1);
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    unlink(path);
    REQUIRE(file >= 0);
    const hid_t connector = H5VLget_connector_id_by_name("h5logfs");
    REQUIRE(connector >= 0);
    const H5VL_class_t *found = NULL;
    REQUIRE(H5VLintrospect_get_conn_cls(H5VLobject(file), connector, H5VL_GET_CONN_LVL_CURR, &found) >= 0);
    Dl_info info;
    REQUIRE(dladdr(found, &info));
    puts(strrchr(info.dli_fname, '/') + 1);
    REQUIRE(H5VLclose(connector) >= 0 && H5Fclose(file) >= 0);
    return 0;
}
