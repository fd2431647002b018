/*
 * links FILE close|leave: makes a file with links that no other program understands, among others, and closes it or
 * ends after a flush.
 */
#include "../hosts/host.h"

#define OK(call) REQUIRE((call) >= 0)

#define KIND ((H5L_type_t)187)

/* Never followed. */
static hid_t follow(const char *name, hid_t group, const void *value, size_t size, hid_t lapl, hid_t dxpl)
{
    (void)name, (void)group, (void)value, (void)size, (void)lapl, (void)dxpl;
    return H5I_INVALID_HID;
}

static void number(hid_t group, const char *name, int value)
{
    const hid_t scalar = H5Screate(H5S_SCALAR);
    const hid_t dataset = H5Dcreate2(group, name, H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value));
    OK(H5Dclose(dataset));
    OK(H5Sclose(scalar));
}

static void fill(hid_t file, const char *name, hid_t gcpl, int further)
{
    const hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, gcpl, H5P_DEFAULT);
    OK(group);
    number(group, "before", 1);
    /* Like an external link: with another version, without a path, and empty. */
    OK(H5Lcreate_ud(group, "broken", H5L_TYPE_EXTERNAL, "value", 6, H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_ud(group, "cut off", H5L_TYPE_EXTERNAL, "\0file", 5, H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_ud(group, "dull", H5L_TYPE_EXTERNAL, NULL, 0, H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_external("elsewhere.h5", "/x", group, "external", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_ud(group, "of a kind", KIND, "text", 5, H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_soft("nowhere", group, "soft", H5P_DEFAULT, H5P_DEFAULT));
    for (int i = 0; i < further; i++) {
        char more[20];
        snprintf(more, sizeof more, "x%d", i);
        number(group, more, i);
    }
    const hid_t below = H5Gcreate2(group, "zone", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(below);
    number(below, "deep", 2);
    OK(H5Gclose(below));
    number(group, "zuletzt", 3);
    OK(H5Gclose(group));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    const H5L_class_t kind = {.version = H5L_LINK_CLASS_T_VERS, .id = KIND, .comment = "a kind", .trav_func = follow};
    OK(H5Lregister(&kind));
    const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), ordered = H5Pcreate(H5P_GROUP_CREATE);
    OK(file);
    OK(H5Pset_link_creation_order(ordered, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED));
    fill(file, "few", H5P_DEFAULT, 0);
    fill(file, "many", H5P_DEFAULT, 30);
    fill(file, "ordered", ordered, 30);
    OK(H5Pclose(ordered));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    if (!strcmp(argv[2], "leave")) {
        _exit(0);
    }
    OK(H5Fclose(file));
    return 0;
}
