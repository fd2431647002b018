/* Selections in files and in memory. */
#include "random.h"

size_t volume(int rank, const hsize_t *dims)
{
    size_t elements = 1;
    for (int i = 0; i < rank; i++) {
        elements *= (size_t)dims[i];
    }
    return elements;
}

struct box {
    hsize_t start[MOST_RANK], stride[MOST_RANK], count[MOST_RANK], block[MOST_RANK];
};

static struct box whole_box(int rank, const hsize_t *low, const hsize_t *high)
{
    struct box box;
    for (int i = 0; i < rank; i++) {
        box.start[i] = low[i];
        box.block[i] = high[i] - low[i];
        box.stride[i] = box.block[i];
        box.count[i] = 1;
    }
    return box;
}

static struct box random_box(int rank, const hsize_t *low, const hsize_t *high, bool strided)
{
    struct box box;
    for (int i = 0; i < rank; i++) {
        const hsize_t size = high[i] - low[i];
        box.start[i] = low[i] + below(size);
        const hsize_t room = high[i] - box.start[i];
        box.block[i] = within(1, room);
        box.stride[i] = box.block[i];
        box.count[i] = 1;
        if (strided) {
            box.block[i] = within(1, room < 3 ? room : 3);
            box.stride[i] = box.block[i] + below(4);
            box.count[i] = within(1, 1 + (room - box.block[i]) / box.stride[i]);
        }
    }
    return box;
}

static void add_box(hid_t space, H5S_seloper_t operator, const struct box *box)
{
    H5(H5Sselect_hyperslab(space, operator, box->start, box->stride, box->count, box->block));
}

static void add_boxes(hid_t space, int rank, const hsize_t *low, const hsize_t *high)
{
    const H5S_seloper_t operators[] = {H5S_SELECT_OR, H5S_SELECT_OR, H5S_SELECT_XOR, H5S_SELECT_NOTB};
    const uint64_t more = within(1, 3);
    for (uint64_t i = 0; i < more; i++) {
        /* HDF5 1.14.6 confuses some unions with strided hyperslabs. */
        const struct box box = random_box(rank, low, high, false);
        add_box(space, operators[below(4)], &box);
    }
}

static void select_points(hid_t space, int rank, const hsize_t *low, const hsize_t *high)
{
    /* A point that is selected twice would be written twice. */
    const size_t most = 12, wanted = (size_t)within(1, most);
    hsize_t points[12 * MOST_RANK];
    size_t count = 0;
    for (size_t tries = 0; tries < wanted; tries++) {
        hsize_t *point = points + count * (size_t)rank;
        for (int i = 0; i < rank; i++) {
            point[i] = low[i] + below(high[i] - low[i]);
        }
        bool known = false;
        for (size_t i = 0; i < count && !known; i++) {
            known = !memcmp(points + i * (size_t)rank, point, (size_t)rank * sizeof *point);
        }
        count += !known;
    }
    H5(H5Sselect_elements(space, H5S_SELECT_SET, count, points));
}

hid_t select_within(int rank, const hsize_t *dims, const hsize_t *low, const hsize_t *high, bool points)
{
    const hid_t space = rank ? H5(H5Screate_simple(rank, dims, NULL)) : H5(H5Screate(H5S_SCALAR));
    for (int i = 0; i < rank; i++) {
        if (low[i] >= high[i]) {
            H5(H5Sselect_none(space));
            return space;
        }
    }
    if (!rank) {
        return space;
    }
    struct box box = whole_box(rank, low, high);
    switch (below(points ? 6 : 5)) {
    case 0:
        add_box(space, H5S_SELECT_SET, &box);
        break;
    case 1:
    case 2:
        box = random_box(rank, low, high, false);
        add_box(space, H5S_SELECT_SET, &box);
        break;
    case 3:
        box = random_box(rank, low, high, true);
        add_box(space, H5S_SELECT_SET, &box);
        break;
    case 4:
        box = random_box(rank, low, high, one_in(2));
        add_box(space, H5S_SELECT_SET, &box);
        add_boxes(space, rank, low, high);
        break;
    default:
        select_points(space, rank, low, high);
    }
    return space;
}

size_t places(hid_t space, hsize_t **found)
{
    const size_t count = (size_t)H5(H5Sget_select_npoints(space));
    hsize_t *all = malloc((count + 1) * sizeof *all);
    REQUIRE(all);
    size_t known = 0;
    const hid_t iterator = H5(H5Ssel_iter_create(space, 1, 0));
    while (known < count) {
        hsize_t offsets[64];
        size_t lengths[64], sequences, elements;
        H5(H5Ssel_iter_get_seq_list(iterator, 64, count - known, &sequences, &elements, offsets, lengths));
        REQUIRE(sequences);
        for (size_t i = 0; i < sequences; i++) {
            for (size_t j = 0; j < lengths[i]; j++) {
                all[known++] = offsets[i] + j;
            }
        }
    }
    H5(H5Ssel_iter_close(iterator));
    *found = all;
    return count;
}

/* Points of memory, in any order. */
static hid_t select_scattered(size_t count)
{
    const hsize_t extent = count + below(4);
    const hid_t space = H5(H5Screate_simple(1, &extent, NULL));
    hsize_t *order = malloc((size_t)extent * sizeof *order);
    REQUIRE(order);
    for (hsize_t i = 0; i < extent; i++) {
        const hsize_t other = below(i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    H5(H5Sselect_elements(space, H5S_SELECT_SET, count, order));
    free(order);
    return space;
}

hid_t select_memory(size_t count, bool points)
{
    if (!count) {
        const hsize_t one = 1;
        const hid_t space = H5(H5Screate_simple(1, &one, NULL));
        H5(H5Sselect_none(space));
        return space;
    }
    if (count <= 64 && points && one_in(5)) {
        return select_scattered(count);
    }
    struct box box = {.stride = {1, 1}, .block = {1, 1}};
    hsize_t extent[2] = {count, 1};
    int rank = 1;
    box.count[0] = count;
    switch (below(4)) {
    case 0:
        break;
    case 1:
        box.start[0] = below(5);
        extent[0] = box.start[0] + count + below(5);
        break;
    case 2:
        box.stride[0] = within(1, 3);
        box.start[0] = below(3);
        extent[0] = box.start[0] + count * box.stride[0];
        break;
    default:
        rank = 2;
        while (count % (box.count[1] = within(1, 7))) {
        }
        box.count[0] = count / box.count[1];
        for (int i = 0; i < 2; i++) {
            box.start[i] = below(3);
            extent[i] = box.start[i] + box.count[i] + below(3);
        }
    }
    const hid_t space = H5(H5Screate_simple(rank, extent, NULL));
    add_box(space, H5S_SELECT_SET, &box);
    return space;
}
