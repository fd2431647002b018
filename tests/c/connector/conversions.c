/*
 * conversions FILE: a program whose element conversions use the file being written or read. They write, read, extend
 * and flush datasets of it. Then it reads texts into its own memory.
 */
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "../check.h"

#define OK(call) REQUIRE((call) >= 0)

enum { LENGTH = 6 };

static hid_t file, values, calls, joined;
static int is_inside, number;

/* Uses everything that the conversion's own call may hold. Memory types equal file types: nothing is converted. */
static void use_the_file(void)
{
    const hsize_t one[] = {1}, extent[] = {++number};
    OK(H5Dset_extent(calls, extent));
    const hid_t space = H5Dget_space(calls), memory = H5Screate_simple(1, one, NULL);
    const hsize_t last[] = {number - 1};
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, last, NULL, one, NULL));
    OK(H5Dwrite(calls, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &number));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    int found = 0;
    OK(H5Dread(calls, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &found));
    REQUIRE(found == number);
    long long raw[LENGTH];
    OK(H5Dread(values, H5T_STD_I64BE, H5S_ALL, H5S_ALL, H5P_DEFAULT, raw));
    OK(H5Dread(joined, H5T_STD_I64BE, H5S_ALL, H5S_ALL, H5P_DEFAULT, raw));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static herr_t convert(H5T_cdata_t *data, size_t count, void *buf, int is_written)
{
    if (data->command == H5T_CONV_INIT) {
        data->need_bkg = H5T_BKG_NO;
    }
    if (data->command != H5T_CONV_CONV) {
        return 0;
    }
    if (!is_inside) {
        is_inside = 1;
        use_the_file();
        is_inside = 0;
    }
    int *narrow = buf;
    unsigned long long *wide = buf;
    for (size_t i = 0; i < count; i++) {
        /* The wide elements overlap the narrow ones. */
        if (is_written) {
            const size_t at = count - 1 - i;
            const long long value = narrow[at];
            wide[at] = __builtin_bswap64((unsigned long long)value);
        } else {
            narrow[i] = (int)__builtin_bswap64(wide[i]);
        }
    }
    return 0;
}

static herr_t widen(hid_t from, hid_t to, H5T_cdata_t *data, size_t count, size_t stride, size_t background_stride, void *buf,
                    void *background, hid_t dxpl)
{
    (void)from, (void)to, (void)stride, (void)background_stride, (void)background, (void)dxpl;
    return convert(data, count, buf, 1);
}

static herr_t narrow(hid_t from, hid_t to, H5T_cdata_t *data, size_t count, size_t stride, size_t background_stride, void *buf,
                     void *background, hid_t dxpl)
{
    (void)from, (void)to, (void)stride, (void)background_stride, (void)background, (void)dxpl;
    return convert(data, count, buf, 0);
}

/* A virtual dataset of the elements of `values`. */
static hid_t made_virtual(hid_t space)
{
    const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_virtual(dcpl, space, ".", "values", space));
    const hid_t made = H5Dcreate2(file, "joined", H5T_STD_I64BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(made);
    OK(H5Pclose(dcpl));
    return made;
}

static void make(const char *path)
{
    const hsize_t length[] = {LENGTH}, none[] = {0}, unlimited[] = {H5S_UNLIMITED}, chunk[] = {4};
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    const hid_t space = H5Screate_simple(1, length, NULL), growing = H5Screate_simple(1, none, unlimited);
    const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(dcpl, 1, chunk));
    values = H5Dcreate2(file, "values", H5T_STD_I64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    calls = H5Dcreate2(file, "calls", H5T_NATIVE_INT, growing, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    joined = made_virtual(space);
    OK(values);
    OK(calls);
    OK(H5Pclose(dcpl));
    OK(H5Sclose(growing));
    OK(H5Sclose(space));
}

static size_t allocated;

static void *allocate(size_t size, void *arg)
{
    (void)arg;
    allocated++;
    return malloc(size);
}

static void release(void *place, void *arg)
{
    (void)arg;
    allocated -= place != NULL;
    free(place);
}

/* Reads unwritten texts, whose fill value libhdf5 must convert, into memory of the program. */
static void read_texts(void)
{
    const hid_t texts = H5Dopen2(file, "texts", H5P_DEFAULT), dxpl = H5Pcreate(H5P_DATASET_XFER);
    const hid_t type = H5Dget_type(texts), space = H5Dget_space(texts);
    OK(H5Pset_vlen_mem_manager(dxpl, allocate, NULL, release, NULL));
    char *found[LENGTH] = {NULL};
    OK(H5Dread(texts, type, H5S_ALL, H5S_ALL, dxpl, found));
    REQUIRE(allocated == LENGTH && !strcmp(found[LENGTH - 1], "none"));
    OK(H5Treclaim(type, space, dxpl, found));
    REQUIRE(allocated == 0);
    OK(H5Sclose(space));
    OK(H5Tclose(type));
    OK(H5Pclose(dxpl));
    OK(H5Dclose(texts));
}

static void make_texts(void)
{
    const hsize_t length[] = {LENGTH};
    const char *const fill = "none";
    const hid_t type = H5Tcopy(H5T_C_S1), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Tset_size(type, H5T_VARIABLE));
    OK(H5Pset_fill_value(dcpl, type, &fill));
    const hid_t space = H5Screate_simple(1, length, NULL);
    const hid_t texts = H5Dcreate2(file, "texts", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(texts);
    OK(H5Dclose(texts));
    OK(H5Sclose(space));
    OK(H5Pclose(dcpl));
    OK(H5Tclose(type));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    OK(H5Tregister(H5T_PERS_HARD, "widen", H5T_NATIVE_INT, H5T_STD_I64BE, widen));
    OK(H5Tregister(H5T_PERS_HARD, "narrow", H5T_STD_I64BE, H5T_NATIVE_INT, narrow));
    make(argv[1]);
    const int written[LENGTH] = {3, 1, -4, 1, 5, -9};
    OK(H5Dwrite(values, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, written));
    REQUIRE(number == 1);
    int found[LENGTH];
    OK(H5Dread(values, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    REQUIRE(number == 2 && !memcmp(found, written, sizeof written));
    memset(found, 0, sizeof found);
    OK(H5Dread(joined, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    REQUIRE(number == 3 && !memcmp(found, written, sizeof written));
    make_texts();
    read_texts();
    OK(H5Dclose(joined));
    OK(H5Dclose(calls));
    OK(H5Dclose(values));
    OK(H5Fclose(file));
    file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    OK(file);
    read_texts();
    OK(H5Fclose(file));
    return 0;
}
