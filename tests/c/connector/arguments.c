/*
 * arguments FILE: reads and writes a dataset with all kinds of arguments, valid and invalid, and prints which of them
 * are accepted, and the final content of the dataset.
 */
#include "../hosts/host.h"

#define OK(call) REQUIRE((call) >= 0)

enum { ROOM = 100 };

static hid_t dataset;
static int values[ROOM], back[ROOM];

/* A selection: its identifier and name. */
struct space {
    const char *name;
    hid_t id;
};

static void attempt(const char *what, hid_t type, struct space memory, struct space file, hid_t dxpl, int has_buffer)
{
    const herr_t written = H5Dwrite(dataset, type, memory.id, file.id, dxpl, has_buffer ? values : NULL);
    const herr_t read = H5Dread(dataset, type, memory.id, file.id, dxpl, has_buffer ? back : NULL);
    printf("%s, %s in memory, %s in the file%s: write %s, read %s\n", what, memory.name, file.name,
           has_buffer ? "" : ", no buffer", written < 0 ? "refused" : "done", read < 0 ? "refused" : "done");
}

static hid_t simple(hsize_t elements)
{
    const hid_t space = H5Screate_simple(1, &elements, NULL);
    OK(space);
    return space;
}

static hid_t slab(hsize_t elements, hsize_t start, hsize_t stride, hsize_t count)
{
    const hid_t space = simple(elements);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &count, NULL));
    return space;
}

static hid_t two_slabs(hsize_t elements, hsize_t first, hsize_t second, hsize_t count)
{
    const hid_t space = slab(elements, first, 1, count);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_OR, &second, NULL, &count, NULL));
    return space;
}

static hid_t points(hsize_t elements, const hsize_t *places, size_t number)
{
    const hid_t space = simple(elements);
    OK(H5Sselect_elements(space, H5S_SELECT_SET, number, places));
    return space;
}

static hid_t moved(hid_t space, hssize_t offset)
{
    OK(H5Soffset_simple(space, &offset));
    return space;
}

static hid_t none(hsize_t elements)
{
    const hid_t space = simple(elements);
    OK(H5Sselect_none(space));
    return space;
}

/* Queries about a written and an unwritten chunk. */
static void ask_for_chunks(hid_t file)
{
    const hsize_t side = 5, places[2] = {0, 5};
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(list, 1, &side));
    const hid_t chunks = H5Dcreate2(file, "chunks", H5T_NATIVE_INT, simple(10), H5P_DEFAULT, list, H5P_DEFAULT);
    OK(H5Dwrite_chunk(chunks, H5P_DEFAULT, 0, places, side * sizeof *values, values));
    for (int i = 0; i < 2; i++) {
        hsize_t size = 99;
        const herr_t asked = H5Dget_chunk_storage_size(chunks, &places[i], &size);
        printf("size of chunk %d: %s, %d bytes\n", i, asked < 0 ? "refused" : "told", (int)size);
        uint32_t filters = 99;
        printf("chunk %d: read %s\n", i, H5Dread_chunk(chunks, H5P_DEFAULT, &places[i], &filters, back) < 0 ? "refused" : "done");
    }
    OK(H5Dclose(chunks));
    OK(H5Pclose(list));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    keep_quiet();
    const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    const hid_t ten = simple(10);
    dataset = H5Dcreate2(file, "x", H5T_STD_I32LE, ten, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    for (int i = 0; i < ROOM; i++) {
        values[i] = i;
    }
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));

    const hid_t text = H5Tcopy(H5T_C_S1), closed = H5Tcopy(H5T_NATIVE_INT), other_list = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Tclose(closed));
    const struct space all = {"all", H5S_ALL};
    const struct space whole = {"ten", ten};
    const struct space nothing = {"none of ten", none(10)};

    /* Types. */
    const struct {
        const char *name;
        hid_t id;
    } types[] = {
        {"int", H5T_NATIVE_INT},
        {"float", H5T_NATIVE_FLOAT},
        {"text", text},
        {"an invalid type", H5I_INVALID_HID},
        {"the number 0 as a type", 0},
        {"another number as a type", 12345},
        {"a closed type", closed},
        {"a dataspace as a type", ten},
        {"the dataset as a type", dataset},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        attempt(types[i].name, types[i].id, all, all, H5P_DEFAULT, 1);
        attempt(types[i].name, types[i].id, whole, whole, H5P_DEFAULT, 1);
        attempt(types[i].name, types[i].id, nothing, nothing, H5P_DEFAULT, 1);
    }

    /* Selections: each of these in memory with each in the file. */
    const hsize_t inside[] = {3, 1}, outside[] = {3, 17};
    const hid_t larger = simple(12);
    const struct space spaces[] = {
        all,
        whole,
        nothing,
        {"none of two", none(2)},
        {"twelve", larger},
        {"two of ten", slab(10, 3, 1, 2)},
        {"two of ten with a stride", slab(10, 3, 4, 2)},
        {"two of ten by an offset", moved(slab(10, 3, 1, 2), 5)},
        {"two that an offset puts outside of ten", moved(slab(10, 3, 1, 2), 6)},
        {"two that an offset puts before ten", moved(slab(10, 3, 1, 2), -4)},
        {"two outside of ten", slab(10, 20, 1, 2)},
        {"two of five", slab(5, 3, 1, 2)},
        {"two outside of five", slab(5, 7, 1, 2)},
        {"four in two pieces", two_slabs(10, 1, 6, 2)},
        {"four in two pieces, one outside", two_slabs(10, 1, 16, 2)},
        {"two points", points(10, inside, 2)},
        {"two points by an offset", moved(points(10, inside, 2), 6)},
        {"two points, one outside", points(10, outside, 2)},
        {"a null dataspace", H5Screate(H5S_NULL)},
        {"a dataspace without an extent", H5Screate(H5S_SIMPLE)},
        {"an invalid dataspace", H5I_INVALID_HID},
        {"a type as a dataspace", text},
    };
    const size_t number = sizeof spaces / sizeof *spaces;
    for (size_t m = 0; m < number; m++) {
        for (size_t f = 0; f < number; f++) {
            /* HDF5 itself writes past the end of a dataset if such a dataspace is larger. */
            if (spaces[f].id == larger) {
                continue;
            }
            attempt("int", H5T_NATIVE_INT, spaces[m], spaces[f], H5P_DEFAULT, 1);
        }
        attempt("int", H5T_NATIVE_INT, spaces[m], spaces[m], H5P_DEFAULT, 0);
    }
    /* Memory may have any number of dimensions. */
    const hsize_t dims[2] = {2, 5}, corner[2] = {1, 3}, beyond[2] = {1, 4}, sides[2] = {1, 2};
    const struct space square = {"two by five", H5Screate_simple(2, dims, NULL)};
    attempt("int", H5T_NATIVE_INT, square, all, H5P_DEFAULT, 1);
    attempt("int", H5T_NATIVE_INT, square, nothing, H5P_DEFAULT, 1);
    const struct space two = {"two", slab(10, 8, 1, 2)};
    OK(H5Sselect_hyperslab(square.id, H5S_SELECT_SET, corner, NULL, sides, NULL));
    attempt("int", H5T_NATIVE_INT, square, two, H5P_DEFAULT, 1);
    OK(H5Sselect_hyperslab(square.id, H5S_SELECT_SET, beyond, NULL, sides, NULL));
    attempt("int", H5T_NATIVE_INT, square, two, H5P_DEFAULT, 1);
    const struct space scalar = {"a scalar", H5Screate(H5S_SCALAR)}, one = {"one", slab(10, 9, 1, 1)};
    attempt("int", H5T_NATIVE_INT, scalar, one, H5P_DEFAULT, 1);
    attempt("int", H5T_NATIVE_INT, scalar, two, H5P_DEFAULT, 1);

    /* Transfer property lists. */
    attempt("a list of another class", H5T_NATIVE_INT, all, all, other_list, 1);
    attempt("a type as a list", H5T_NATIVE_INT, all, all, text, 1);
    attempt("an invalid list", H5T_NATIVE_INT, all, all, H5I_INVALID_HID, 1);

    OK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, back));
    for (int i = 0; i < 10; i++) {
        printf("%d ", back[i]);
    }
    printf("\n");
    OK(H5Dclose(dataset));
    ask_for_chunks(file);
    OK(H5Fclose(file));
    return 0;
}
