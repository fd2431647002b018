/*
 * counts FILE: prints how many objects of each kind of a file are open, while it opens more of them.
 */
#include "../hosts/host.h"

#define OK(call) REQUIRE((call) >= 0)

static hid_t file;

static void count(const char *when)
{
    static const struct {
        const char *name;
        unsigned kind;
    } kinds[] = {
        {"files", H5F_OBJ_FILE},          {"datasets", H5F_OBJ_DATASET},     {"groups", H5F_OBJ_GROUP},
        {"datatypes", H5F_OBJ_DATATYPE},  {"attributes", H5F_OBJ_ATTR},      {"all", H5F_OBJ_ALL},
        {"all of it", H5F_OBJ_ALL | H5F_OBJ_LOCAL},
    };
    printf("%s:", when);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hid_t found[50];
        const ssize_t number = H5Fget_obj_count(file, kinds[i].kind);
        const ssize_t listed = H5Fget_obj_ids(file, kinds[i].kind, 50, found);
        const ssize_t everywhere = H5Fget_obj_count(H5F_OBJ_ALL, kinds[i].kind);
        printf(" %zd %s", number, kinds[i].name);
        if (listed != number || everywhere != number) {
            printf(" (%zd listed, %zd in all files)", listed, everywhere);
        }
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    count("a file");
    const hid_t type = H5Tcopy(H5T_NATIVE_INT);
    OK(H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    count("a committed type");
    const hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(group);
    count("a group");
    const hsize_t length = 4;
    const hid_t space = H5Screate_simple(1, &length, NULL);
    const hid_t plain = H5Dcreate2(file, "plain", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(plain);
    count("a dataset");
    const hid_t dataset = H5Dcreate2(group, "dataset", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    count("a dataset of the type");
    const int values[4] = {1, 2, 3, 4};
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    OK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    count("written");
    const hid_t attribute = H5Acreate2(group, "attribute", type, space, H5P_DEFAULT, H5P_DEFAULT);
    OK(attribute);
    count("an attribute");
    const hid_t same = H5Dget_type(dataset);
    count("the type of the dataset");
    OK(H5Tclose(same));
    const hid_t again = H5Dopen2(file, "group/dataset", H5P_DEFAULT);
    OK(again);
    count("the dataset again");
    OK(H5Dclose(again));
    OK(H5Tclose(type));
    count("without the type");
    OK(H5Dclose(dataset));
    OK(H5Dclose(plain));
    OK(H5Aclose(attribute));
    OK(H5Gclose(group));
    count("only the file");
    OK(H5Fclose(file));
    file = H5Fopen(argv[1], H5F_ACC_RDWR, H5P_DEFAULT);
    OK(file);
    const hid_t opened = H5Topen2(file, "type", H5P_DEFAULT);
    OK(opened);
    const hid_t once_more = H5Dopen2(file, "group/dataset", H5P_DEFAULT);
    OK(once_more);
    int back[4];
    OK(H5Dread(once_more, opened, H5S_ALL, H5S_ALL, H5P_DEFAULT, back));
    REQUIRE(!memcmp(back, values, sizeof back));
    count("opened again");
    OK(H5Tclose(opened));
    OK(H5Dclose(once_more));
    count("closed again");
    OK(H5Sclose(space));
    OK(H5Fclose(file));
    return 0;
}
