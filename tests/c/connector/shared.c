/*
 * shared DIRECTORY: copies a dataset with H5Ocopy into a file whose objects share messages, and reads the copy. The
 * file also has sequences, which are not logged: they keep the chunk index chosen by the program.
 */
#include "../hosts/host.h"

#define OK(call) REQUIRE((call) >= 0)

/* A chunked dataset of four sequences. */
static void make_sequences(hid_t file, hsize_t side)
{
    int number = 7;
    hvl_t sequences[4];
    for (int i = 0; i < 4; i++) {
        sequences[i] = (hvl_t){1, &number};
    }
    const hsize_t dims = 4;
    const hid_t space = H5Screate_simple(1, &dims, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(properties, 1, &side));
    const hid_t type = H5Tvlen_create(H5T_NATIVE_INT);
    const hid_t dataset = H5Dcreate2(file, "sequences", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    OK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, sequences));
    OK(H5Dclose(dataset));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2 && chdir(argv[1]) == 0);
    const hsize_t dims = 10, side = 4;
    const double fill = 3.5;
    double values[10], back[10] = {0};
    for (int i = 0; i < 10; i++) {
        values[i] = i * 0.5;
    }
    const hid_t space = H5Screate_simple(1, &dims, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(properties, 1, &side));
    OK(H5Pset_deflate(properties, 6));
    OK(H5Pset_fill_value(properties, H5T_NATIVE_DOUBLE, &fill));
    hid_t from = H5Fcreate("from.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = H5Dcreate2(from, "d", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    OK(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    OK(H5Dclose(dataset));
    OK(H5Fclose(from));

    const hid_t sharing = H5Pcreate(H5P_FILE_CREATE);
    OK(H5Pset_shared_mesg_nindexes(sharing, 1));
    OK(H5Pset_shared_mesg_index(sharing, 0, H5O_SHMESG_ALL_FLAG, 10));
    from = H5Fopen("from.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t newest = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_libver_bounds(newest, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    hid_t to = H5Fcreate("to.h5", H5F_ACC_TRUNC, sharing, newest);
    make_sequences(to, 2);
    OK(H5Ocopy(from, "d", to, "d", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Fclose(from));
    OK(H5Fclose(to));

    to = H5Fopen("to.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    OK(to);
    dataset = H5Dopen2(to, "d", H5P_DEFAULT);
    OK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, back));
    REQUIRE(memcmp(values, back, sizeof values) == 0);
    double filled = 0;
    OK(H5Pget_fill_value(H5Dget_create_plist(dataset), H5T_NATIVE_DOUBLE, &filled));
    REQUIRE(filled == fill);
    OK(H5Dclose(dataset));

    H5D_chunk_index_t index = H5D_CHUNK_IDX_BTREE;
    dataset = H5Dopen2(to, "sequences", H5P_DEFAULT);
    OK(H5Dget_chunk_index_type(dataset, &index));
    REQUIRE(index == H5D_CHUNK_IDX_FARRAY);
    OK(H5Dclose(dataset));
    OK(H5Fclose(to));
    return 0;
}
