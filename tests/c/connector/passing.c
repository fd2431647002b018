/*
 * passing DIRECTORY: makes files in an empty directory with many HDF5 functions, and prints their results. A
 * pass-through connector changes neither a line nor a byte.
 */
#include "../hosts/host.h"

#define OK(call) REQUIRE((call) >= 0)

static hid_t no_times(hid_t class)
{
    const hid_t list = H5Pcreate(class);
    OK(H5Pset_obj_track_times(list, 0));
    return list;
}

static hid_t numbers(hid_t at, const char *name, hsize_t rows, int chunked)
{
    const hsize_t dims[2] = {rows, 8}, most[2] = {H5S_UNLIMITED, 8}, chunk[2] = {4, 8};
    const hid_t space = H5Screate_simple(2, dims, chunked ? most : NULL), dcpl = no_times(H5P_DATASET_CREATE);
    if (chunked) {
        OK(H5Pset_chunk(dcpl, 2, chunk));
        OK(H5Pset_deflate(dcpl, 1));
    }
    const hid_t dataset = H5Dcreate2(at, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Pclose(dcpl));
    OK(H5Sclose(space));
    return dataset;
}

static void show_object(hid_t file, const char *name)
{
    H5O_info2_t info;
    OK(H5Oget_info_by_name3(file, name, &info, H5O_INFO_ALL, H5P_DEFAULT));
    char *token;
    OK(H5Otoken_to_str(file, &info.token, &token));
    printf("object %s: type %d, %u links, %llu attributes, token %s\n", name, (int)info.type, info.rc,
           (unsigned long long)info.num_attrs, token);
    H5O_token_t again;
    int order = 1;
    OK(H5Otoken_from_str(file, token, &again));
    OK(H5Otoken_cmp(file, &info.token, &again, &order));
    REQUIRE(order == 0);
    const hid_t object = H5Oopen_by_token(file, again);
    OK(object);
    char path[100];
    OK(H5Iget_name(object, path, sizeof path));
    const hid_t of = H5Iget_file_id(object);
    OK(of);
    printf("  opened by token: %s, identifier of type %d, its file of type %d\n", path, (int)H5Iget_type(object),
           (int)H5Iget_type(of));
    OK(H5Fclose(of));
    OK(H5Oclose(object));
    H5free_memory(token);
}

static herr_t show_link(hid_t group, const char *name, const H5L_info2_t *info, void *count)
{
    /* The group is a working object. */
    REQUIRE(H5Lexists(group, name, H5P_DEFAULT) > 0);
    printf("  link %s of type %d\n", name, (int)info->type);
    ++*(int *)count;
    return 0;
}

static herr_t show_visited(hid_t object, const char *name, const H5O_info2_t *info, void *count)
{
    if (info->type == H5O_TYPE_DATASET) {
        const hid_t dataset = H5Dopen2(object, name, H5P_DEFAULT);
        OK(dataset);
        printf("  dataset %s: %llu bytes stored\n", name, (unsigned long long)H5Dget_storage_size(dataset));
        OK(H5Dclose(dataset));
    }
    ++*(int *)count;
    return 0;
}

static herr_t show_old(hid_t group, const char *name, void *count)
{
    H5G_stat_t stat;
    OK(H5Gget_objinfo(group, name, 0, &stat));
    printf("  old %s of type %d\n", name, (int)stat.type);
    ++*(int *)count;
    return 0;
}

static herr_t show_attribute(hid_t object, const char *name, const H5A_info_t *info, void *count)
{
    REQUIRE(H5Aexists(object, name) > 0);
    printf("  attribute %s: %llu bytes\n", name, (unsigned long long)info->data_size);
    ++*(int *)count;
    return 0;
}

static int show_chunk(const hsize_t *offset, unsigned mask, haddr_t address, hsize_t size, void *count)
{
    printf("  chunk %llu, %llu: mask %u, %llu bytes, %s\n", (unsigned long long)offset[0], (unsigned long long)offset[1],
           mask, (unsigned long long)size, address == HADDR_UNDEF ? "nowhere" : "stored");
    ++*(int *)count;
    return 0;
}

static void attributes(hid_t object)
{
    const hsize_t length = 3;
    const int values[3] = {1, 2, 3};
    int got[3] = {0}, count = 0;
    const hid_t space = H5Screate_simple(1, &length, NULL);
    for (int i = 0; i < 3; i++) {
        char name[10];
        snprintf(name, sizeof name, "a%d", i);
        const hid_t attribute = H5Acreate2(object, name, H5T_STD_I16BE, space, H5P_DEFAULT, H5P_DEFAULT);
        OK(attribute);
        OK(H5Awrite(attribute, H5T_NATIVE_INT, values));
        OK(H5Aread(attribute, H5T_NATIVE_INT, got));
        REQUIRE(!memcmp(got, values, sizeof got));
        const hid_t type = H5Aget_type(attribute), same = H5Aget_space(attribute);
        char told[10];
        OK(H5Aget_name(attribute, sizeof told, told));
        printf("attribute %s: type of %zu bytes, %lld elements, %llu stored\n", told, H5Tget_size(type),
               (long long)H5Sget_simple_extent_npoints(same), (unsigned long long)H5Aget_storage_size(attribute));
        OK(H5Tclose(type));
        OK(H5Sclose(same));
        OK(H5Aclose(attribute));
    }
    OK(H5Arename(object, "a1", "renamed"));
    OK(H5Adelete(object, "a2"));
    hsize_t at = 0;
    OK(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &at, show_attribute, &count));
    REQUIRE(count == 2 && at == 2);
    OK(H5Adelete_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, 0, H5P_DEFAULT));
    REQUIRE(H5Aexists_by_name(object, ".", "a0", H5P_DEFAULT) == 0);
    OK(H5Sclose(space));
}

static void chunks(hid_t dataset)
{
    const hsize_t size[2] = {16, 8}, second[2] = {4, 0};
    OK(H5Dset_extent(dataset, size));
    int values[16][8], got[16][8];
    for (int i = 0; i < 16 * 8; i++) {
        values[i / 8][i % 8] = i;
    }
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    unsigned char raw[200];
    memset(raw, 7, sizeof raw);
    /* All filters are skipped. */
    OK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 1, second, 4 * 8 * sizeof(int), raw));
    uint32_t mask = 0;
    unsigned char back[200] = {0};
    /* libhdf5 forgets the mask of the chunk seen last. */
    OK(H5Dread_chunk(dataset, H5P_DEFAULT, (const hsize_t[]){0, 0}, &mask, back));
    OK(H5Dread_chunk(dataset, H5P_DEFAULT, second, &mask, back));
    REQUIRE(mask == 1 && !memcmp(raw, back, 4 * 8 * sizeof(int)));
    OK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got));
    REQUIRE(got[4][0] == 0x07070707 && got[15][7] == 127);
    hsize_t chunk_count = 0, offset[2], bytes = 0;
    OK(H5Dget_num_chunks(dataset, H5S_ALL, &chunk_count));
    unsigned filters = 0;
    haddr_t address;
    OK(H5Dget_chunk_info(dataset, H5S_ALL, 1, offset, &filters, &address, &bytes));
    printf("%llu chunks; the second: at %llu, mask %u, %llu bytes\n", (unsigned long long)chunk_count,
           (unsigned long long)offset[0], filters, (unsigned long long)bytes);
    OK(H5Dget_chunk_info_by_coord(dataset, second, &filters, &address, &bytes));
    OK(H5Dget_chunk_storage_size(dataset, second, &bytes));
    int count = 0;
    OK(H5Dchunk_iter(dataset, H5P_DEFAULT, show_chunk, &count));
    REQUIRE(count == 4);
    H5D_space_status_t status;
    OK(H5Dget_space_status(dataset, &status));
    const hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset), dcpl = H5Dget_create_plist(dataset),
                dapl = H5Dget_access_plist(dataset);
    printf("dataset: %lld elements, %d filters, status %d, %llu stored\n",
           (long long)H5Sget_simple_extent_npoints(space), H5Pget_nfilters(dcpl), (int)status,
           (unsigned long long)H5Dget_storage_size(dataset));
    OK(H5Sclose(space));
    OK(H5Tclose(type));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(dapl));
}

static void several(hid_t file)
{
    hid_t datasets[3], types[3], all[3] = {H5S_ALL, H5S_ALL, H5S_ALL};
    int values[3][2][8], got[3][2][8];
    const void *from[3];
    void *to[3];
    for (int i = 0; i < 3; i++) {
        char name[10];
        snprintf(name, sizeof name, "multi%d", i);
        datasets[i] = numbers(file, name, 2, 0);
        types[i] = H5T_NATIVE_INT;
        for (int j = 0; j < 16; j++) {
            values[i][j / 8][j % 8] = 100 * i + j;
        }
        from[i] = values[i];
        to[i] = got[i];
    }
    OK(H5Dwrite_multi(3, datasets, types, all, all, H5P_DEFAULT, from));
    OK(H5Dread_multi(3, datasets, types, all, all, H5P_DEFAULT, to));
    REQUIRE(!memcmp(values, got, sizeof values));
    printf("contiguous data %s\n", H5Dget_offset(datasets[0]) == HADDR_UNDEF ? "nowhere" : "stored");
    const hid_t set = H5EScreate();
    size_t in_progress = 0;
    hbool_t failed = 1;
    OK(H5Dwrite_async(datasets[1], H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values[0], set));
    OK(H5ESwait(set, H5ES_WAIT_FOREVER, &in_progress, &failed));
    REQUIRE(in_progress == 0 && !failed);
    OK(H5ESclose(set));
    OK(H5Dread(datasets[1], H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got[1]));
    REQUIRE(!memcmp(values[0], got[1], sizeof got[1]));
    for (int i = 0; i < 3; i++) {
        OK(H5Dclose(datasets[i]));
    }
}

static void variable(hid_t file)
{
    const hsize_t length = 3;
    const char *texts[3] = {"one", "", "a longer one"};
    char *got[3];
    const hid_t space = H5Screate_simple(1, &length, NULL), type = H5Tcopy(H5T_C_S1),
                dcpl = no_times(H5P_DATASET_CREATE);
    OK(H5Tset_size(type, H5T_VARIABLE));
    const hid_t dataset = H5Dcreate2(file, "texts", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts));
    OK(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, got));
    hsize_t bytes = 0;
    OK(H5Dvlen_get_buf_size(dataset, type, space, &bytes));
    printf("texts: %s, %s, %s; %llu bytes\n", got[0], got[1], got[2], (unsigned long long)bytes);
    OK(H5Treclaim(type, space, H5P_DEFAULT, got));
    OK(H5Dclose(dataset));
    /* References to objects, regions and attributes, and old ones. */
    H5R_ref_t references[3];
    const hid_t chosen = H5Screate_simple(2, (const hsize_t[]){16, 8}, NULL);
    OK(H5Sselect_hyperslab(chosen, H5S_SELECT_SET, (const hsize_t[]){2, 2}, NULL, (const hsize_t[]){3, 4}, NULL));
    OK(H5Rcreate_object(file, "/group", H5P_DEFAULT, &references[0]));
    OK(H5Rcreate_region(file, "/group/grown", chosen, H5P_DEFAULT, &references[1]));
    OK(H5Rcreate_attr(file, "/group", "renamed", H5P_DEFAULT, &references[2]));
    const hid_t places = H5Dcreate2(file, "references", H5T_STD_REF, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(H5Dwrite(places, H5T_STD_REF, H5S_ALL, H5S_ALL, H5P_DEFAULT, references));
    H5R_ref_t read[3];
    OK(H5Dread(places, H5T_STD_REF, H5S_ALL, H5S_ALL, H5P_DEFAULT, read));
    for (int i = 0; i < 3; i++) {
        char name[50], in[200];
        OK(H5Rget_obj_name(&read[i], H5P_DEFAULT, name, sizeof name));
        OK(H5Rget_file_name(&read[i], in, sizeof in));
        H5O_type_t object_type;
        OK(H5Rget_obj_type3(&read[i], H5P_DEFAULT, &object_type));
        printf("reference %d of type %d to %s in %s, an object of type %d\n", i, (int)H5Rget_type(&read[i]), name,
               strrchr(in, '/') + 1, (int)object_type);
    }
    const hid_t group = H5Ropen_object(&read[0], H5P_DEFAULT, H5P_DEFAULT),
                region = H5Ropen_region(&read[1], H5P_DEFAULT, H5P_DEFAULT),
                attribute = H5Ropen_attr(&read[2], H5P_DEFAULT, H5P_DEFAULT);
    printf("opened: %d, %lld elements, %d\n", (int)H5Iget_type(group), (long long)H5Sget_select_npoints(region),
           (int)H5Iget_type(attribute));
    OK(H5Gclose(group));
    OK(H5Sclose(region));
    OK(H5Aclose(attribute));
    for (int i = 0; i < 3; i++) {
        OK(H5Rdestroy(&references[i]));
        OK(H5Rdestroy(&read[i]));
    }
    hobj_ref_t old;
    OK(H5Rcreate(&old, file, "/group/grown", H5R_OBJECT1, -1));
    const hid_t object = H5Rdereference2(file, H5P_DEFAULT, H5R_OBJECT1, &old);
    OK(object);
    printf("an old reference: %d\n", (int)H5Iget_type(object));
    OK(H5Oclose(object));
    OK(H5Dclose(places));
    OK(H5Sclose(chosen));
    OK(H5Pclose(dcpl));
    OK(H5Tclose(type));
    OK(H5Sclose(space));
}

static void types(hid_t file)
{
    const hid_t tcpl = no_times(H5P_DATATYPE_CREATE), dcpl = no_times(H5P_DATASET_CREATE),
                type = H5Tcreate(H5T_COMPOUND, 12);
    OK(H5Tinsert(type, "x", 0, H5T_NATIVE_INT));
    OK(H5Tinsert(type, "y", 4, H5T_NATIVE_DOUBLE));
    OK(H5Tcommit2(file, "type", type, H5P_DEFAULT, tcpl, H5P_DEFAULT));
    REQUIRE(H5Tcommitted(type) > 0);
    OK(H5Tflush(type));
    OK(H5Trefresh(type));
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t dataset = H5Dcreate2(file, "typed", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(H5Dclose(dataset));
    const hid_t again = H5Dopen2(file, "typed", H5P_DEFAULT), its = H5Dget_type(again);
    REQUIRE(H5Tcommitted(its) > 0);
    const hid_t list = H5Tget_create_plist(its);
    OK(list);
    char name[20];
    OK(H5Iget_name(its, name, sizeof name));
    printf("a committed type: %s, %zu bytes\n", name, H5Tget_size(its));
    const hid_t opened_type = H5Topen2(file, "type", H5P_DEFAULT);
    REQUIRE(H5Tequal(opened_type, its) > 0);
    const hid_t nameless = H5Dcreate_anon(file, opened_type, space, dcpl, H5P_DEFAULT);
    OK(H5Olink(nameless, file, "named later", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Dclose(nameless));
    OK(H5Pclose(list));
    OK(H5Tclose(opened_type));
    OK(H5Tclose(its));
    OK(H5Dclose(again));
    OK(H5Sclose(space));
    OK(H5Tclose(type));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(tcpl));
}

static void links(hid_t file, hid_t group)
{
    OK(H5Lcreate_soft("/group/grown", file, "soft", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_external("other.h5", "/copied", file, "external", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_hard(group, "grown", file, "hard", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_hard(H5L_SAME_LOC, "grown", group, "back", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_hard(group, "grown", H5L_SAME_LOC, "same", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcopy(file, "soft", group, "soft copy", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lmove(group, "same", file, "moved", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lmove(file, "moved", H5L_SAME_LOC, "moved again", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Ldelete(file, "moved again", H5P_DEFAULT));
    char value[50] = "";
    H5L_info2_t info;
    OK(H5Lget_info2(file, "external", &info, H5P_DEFAULT));
    OK(H5Lget_val(file, "external", value, sizeof value, H5P_DEFAULT));
    const char *in, *path;
    OK(H5Lunpack_elink_val(value, info.u.val_size, NULL, &in, &path));
    printf("external: %s %s\n", in, path);
    char name[50];
    OK(H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_DEC, 0, name, sizeof name, H5P_DEFAULT));
    printf("the last name: %s\n", name);
    int count = 0;
    OK(H5Literate2(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, show_link, &count));
    OK(H5Lvisit_by_name2(file, "/", H5_INDEX_NAME, H5_ITER_INC, show_link, &count, H5P_DEFAULT));
    OK(H5Giterate(file, "/group", NULL, show_old, &count));
    OK(H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, show_visited, &count, H5O_INFO_BASIC));
    printf("visited %d\n", count);
}

static void mounts(hid_t file, const char *path)
{
    const hid_t other = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(other);
    OK(H5Dclose(numbers(other, "child", 2, 0)));
    const hid_t mount = H5Gcreate2(file, "mount", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(H5Fmount(file, "mount", other, H5P_DEFAULT));
    const hid_t mounted = H5Dopen2(file, "mount/child", H5P_DEFAULT);
    OK(mounted);
    OK(H5Dclose(mounted));
    OK(H5Funmount(file, "mount"));
    OK(H5Gclose(mount));
    OK(H5Fclose(other));
}

static void objects(hid_t file, const char *other_path)
{
    const hid_t other = H5Fcreate(other_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(other);
    OK(H5Ocopy(file, "/group/grown", other, "copied", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Ocopy(file, "/group", file, "group copy", H5P_DEFAULT, H5P_DEFAULT));
    const hid_t external = H5Dopen2(file, "external", H5P_DEFAULT);
    OK(external);
    char name[300];
    OK(H5Fget_name(external, name, sizeof name));
    printf("through the external link: %s\n", strrchr(name, '/') + 1);
    OK(H5Dclose(external));
    OK(H5Fclose(other));
    const hid_t object = H5Oopen(file, "group copy", H5P_DEFAULT);
    OK(H5Oincr_refcount(object));
    OK(H5Odecr_refcount(object));
    OK(H5Oset_comment(object, "a comment"));
    OK(H5Oget_comment(object, name, sizeof name));
    OK(H5Oflush(object));
    OK(H5Orefresh(object));
    REQUIRE(H5Oexists_by_name(file, "group copy", H5P_DEFAULT) > 0);
    printf("comment: %s\n", name);
    OK(H5Oclose(object));
    const hid_t by_number = H5Oopen_by_idx(file, "/", H5_INDEX_NAME, H5_ITER_INC, 0, H5P_DEFAULT);
    OK(by_number);
    OK(H5Oclose(by_number));
    show_object(file, "group");
    show_object(file, "group/grown");
    show_object(file, "type");
    show_object(file, "/");
}

static void files(hid_t file, const char *path)
{
    char name[300];
    unsigned intent = 0;
    unsigned long one = 0, another = 1;
    hsize_t size = 0;
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Fget_name(file, name, sizeof name));
    OK(H5Fget_intent(file, &intent));
    OK(H5Fget_filesize(file, &size));
    const hid_t again = H5Freopen(file);
    OK(again);
    OK(H5Fget_fileno(file, &one));
    OK(H5Fget_fileno(again, &another));
    printf("file: %s name, intent %u, %llu bytes, %s number, %zd objects\n", strcmp(name, path) ? "other" : "same", intent,
           (unsigned long long)size, one == another ? "same" : "other",
           H5Fget_obj_count(file, H5F_OBJ_ALL | H5F_OBJ_LOCAL));
    hid_t ids[20];
    printf("all objects: %zd\n", H5Fget_obj_ids(H5F_OBJ_ALL, H5F_OBJ_ALL, 20, ids));
    OK(H5Fclose(again));
    const hid_t fapl = H5Fget_access_plist(file), fcpl = H5Fget_create_plist(file), plain = H5Pcreate(H5P_FILE_ACCESS);
    int *handle;
    OK(H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&handle));
    uint64_t can = 0, usually_can = 1;
    OK(H5Pget_vol_cap_flags(fapl, &can));
    OK(H5Pget_vol_cap_flags(plain, &usually_can));
    printf("access: driver %s, descriptor %d, capabilities %llx %s\n", H5Pget_driver(fapl) == H5FD_SEC2 ? "sec2" : "other",
           fcntl(*handle, F_GETFD) >= 0, (unsigned long long)can, can == usually_can ? "as usual" : "other");
    OK(H5Pclose(fapl));
    OK(H5Pclose(plain));
    OK(H5Pclose(fcpl));
}

/* The property list of an open file makes the next one like it. */
static void another(hid_t file, const char *path)
{
    const hid_t fapl = H5Fget_access_plist(file), more = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, fapl);
    OK(more);
    char one[50], other[50];
    OK(H5VLget_connector_name(file, one, sizeof one));
    OK(H5VLget_connector_name(more, other, sizeof other));
    printf("%s connector\n", strcmp(one, other) ? "another" : "the same");
    OK(H5Fclose(more));
    OK(H5Pclose(fapl));
    printf("accessible: %d\n", H5Fis_accessible(path, H5P_DEFAULT));
    OK(H5Fdelete(path, H5P_DEFAULT));
    struct stat found;
    printf("deleted: %d\n", stat(path, &found) < 0 && errno == ENOENT);
    H5E_BEGIN_TRY
    {
        printf("accessible: %d\n", H5Fis_accessible(path, H5P_DEFAULT));
    }
    H5E_END_TRY
}

static herr_t stops(hid_t group, const char *name, const H5L_info2_t *info, void *arg)
{
    (void)name, (void)info, (void)arg;
    H5E_BEGIN_TRY
    {
        REQUIRE(H5Gopen2(group, "nowhere", H5P_DEFAULT) < 0);
    }
    H5E_END_TRY
    return 7;
}

/* Each of these fails, and prints one error stack. */
static void failures(hid_t file, const char *path)
{
    REQUIRE(H5Dopen2(file, "nothing", H5P_DEFAULT) < 0);
    REQUIRE(H5Gopen2(file, "typed", H5P_DEFAULT) < 0);
    REQUIRE(H5Aopen(file, "nothing", H5P_DEFAULT) < 0);
    REQUIRE(H5Ldelete(file, "nothing", H5P_DEFAULT) < 0);
    REQUIRE(H5Oopen(file, "nothing", H5P_DEFAULT) < 0);
    REQUIRE(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) < 0);
    REQUIRE(H5Fopen("nowhere/nothing", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    REQUIRE(H5Literate2(file, H5_INDEX_NAME, H5_ITER_INC, NULL, stops, NULL) == 7);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    char path[300], other[300], more[300];
    snprintf(path, sizeof path, "%s/main.h5", argv[1]);
    snprintf(other, sizeof other, "%s/other.h5", argv[1]);
    snprintf(more, sizeof more, "%s/more.h5", argv[1]);
    const hid_t file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    mounts(file, other);
    const hid_t gcpl = no_times(H5P_GROUP_CREATE);
    OK(H5Pset_link_creation_order(gcpl, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED));
    const hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, gcpl, H5P_DEFAULT);
    OK(group);
    attributes(group);
    const hid_t grown = numbers(group, "grown", 0, 1);
    chunks(grown);
    OK(H5Dflush(grown));
    OK(H5Drefresh(grown));
    OK(H5Gflush(group));
    OK(H5Grefresh(group));
    several(file);
    variable(file);
    types(file);
    links(file, group);
    objects(file, other);
    files(file, path);
    another(file, more);
    failures(file, path);
    H5G_info_t info;
    OK(H5Gget_info(group, &info));
    const hid_t list = H5Gget_create_plist(group);
    printf("group: %llu links\n", (unsigned long long)info.nlinks);
    OK(H5Pclose(list));
    OK(H5Pclose(gcpl));
    /* The file stays open as long as its objects. */
    OK(H5Fclose(file));
    OK(H5Dclose(grown));
    OK(H5Gclose(group));
    const hid_t again = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    OK(again);
    OK(H5Ldelete(again, "group copy", H5P_DEFAULT));
    /* A strong close closes what is open. */
    OK(H5Fclose(again));
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG));
    const hid_t strong = H5Fopen(path, H5F_ACC_RDONLY, fapl), left = H5Dopen2(strong, "hard", H5P_DEFAULT);
    OK(left);
    OK(H5Fclose(strong));
    printf("left open: %d\n", H5Iis_valid(left));
    OK(H5Pclose(fapl));
    return 0;
}
