// exceptions FILE OTHER LIBRARY: callbacks of the program throw inside libhdf5, and the program continues. FILE is
// made, OTHER is a file behind one of its links, and LIBRARY has H5Dwrite_n. Prints the outcome of each call, which
// is the same with a plug-in and without.

#include <dlfcn.h>
#include <hdf5.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// Has a destructor, and lives in frames that an exception passes through.
struct Thrown : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "not so: %s\n", what);
    std::exit(1);
}

void require(bool holds, const char *what) {
    if (!holds) {
        fail(what);
    }
}

hid_t good(hid_t id, const char *what) {
    require(id >= 0, what);
    return id;
}

// The function that prints errors must be the same after each case.
herr_t print(hid_t, void *) { return 0; }

void check_printing(const std::string &name) {
    H5E_auto2_t function = nullptr;
    void *data = nullptr;
    H5Eget_auto2(H5E_DEFAULT, &function, &data);
    if (function != print || data != stdout) {
        fail((name + ": errors are not printed as before").c_str());
    }
}

// Calls, and prints whether an exception arrived, and which.
void run(const std::string &name, const std::function<herr_t()> &call) {
    std::string said;
    try {
        said = call() < 0 ? "failed" : "succeeded";
    } catch (const Thrown &thrown) {
        said = thrown.what();
    }
    std::printf("%s: %s\n", name.c_str(), said.c_str());
    check_printing(name);
}

// Functions of the program.
herr_t on_link(hid_t, const char *name, const H5L_info2_t *, void *) { throw Thrown(std::string("link ") + name); }
herr_t on_object(hid_t, const char *name, const H5O_info2_t *, void *) { throw Thrown(std::string("object ") + name); }
herr_t on_attribute(hid_t, const char *name, const H5A_info_t *, void *) { throw Thrown(std::string("attribute ") + name); }
herr_t on_element(void *, hid_t, unsigned, const hsize_t *point, void *) {
    throw Thrown("element " + std::to_string(point[0]));
}
herr_t on_scatter(const void **, size_t *, void *) { throw Thrown("scatter"); }
herr_t on_gather(const void *, size_t, void *) { throw Thrown("gather"); }
int on_chunk(const hsize_t *, unsigned, haddr_t, hsize_t, void *) { throw Thrown("chunk"); }
H5T_conv_ret_t on_overflow(H5T_conv_except_t, hid_t, hid_t, void *, void *, void *) { throw Thrown("overflow"); }
void *on_allocation(size_t, void *) { throw Thrown("allocation"); }
void on_free(void *, void *) {}
herr_t on_external_link(const char *, const char *, const char *, const char *, unsigned *, hid_t, void *) {
    throw Thrown("external link");
}
hid_t on_own_link(const char *, hid_t, const void *, size_t, hid_t, hid_t) { throw Thrown("own link"); }
H5O_mcdt_search_ret_t on_search(void *) { throw Thrown("search"); }
htri_t can_apply(hid_t, hid_t, hid_t) { throw Thrown("filter"); }
size_t filter(unsigned, size_t, const unsigned *, size_t size, size_t *, void **) { return size; }

// A conversion that throws once.
bool converts = true;
herr_t on_conversion(hid_t, hid_t, H5T_cdata_t *data, size_t, size_t, size_t, void *, void *, hid_t) {
    if (data->command == H5T_CONV_CONV && !converts) {
        converts = true;
        throw Thrown("conversion");
    }
    return 0;
}

constexpr H5L_type_t OWN_LINK = static_cast<H5L_type_t>(H5L_TYPE_UD_MIN + 7);
constexpr H5Z_filter_t OWN_FILTER = 301;
constexpr hsize_t COUNT = 8;

void check_elements(hid_t dataset, const std::array<int, COUNT> &expected, const char *what) {
    std::array<int, COUNT> read{};
    require(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()) >= 0, what);
    require(read == expected, what);
}

// The file that a link access property list names for opening external links: none here.
void check_links(hid_t lapl) {
    hid_t files = H5Pget_elink_fapl(lapl);
    hid_t other = H5Pcreate(H5P_FILE_ACCESS);
    require(H5Pget_driver(files) == H5Pget_driver(other), "the list for external links is as before");
    H5Pclose(other);
    H5Pclose(files);
}

struct File {
    hid_t file, group, dataset, chunked, texts;
    // One value does not fit a signed char.
    std::array<int, COUNT> values{3, 1, 4, 1000, 5, 9, 2, 6};
};

void make(File &f, const char *path, const char *other) {
    hid_t target = good(H5Fcreate(other, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), "the other file");
    H5Gclose(good(H5Gcreate2(target, "there", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "its group"));
    require(H5Fclose(target) >= 0, "the other file is closed");

    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_V110);
    f.file = good(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl), "the file");
    H5Pclose(fapl);
    hsize_t count = COUNT;
    hid_t space = H5Screate_simple(1, &count, nullptr);
    f.dataset = good(H5Dcreate2(f.file, "a", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "a");
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk = 4;
    H5Pset_chunk(dcpl, 1, &chunk);
    f.chunked = good(H5Dcreate2(f.file, "b", H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT), "b");
    H5Pclose(dcpl);
    for (hid_t dataset : {f.dataset, f.chunked}) {
        require(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, f.values.data()) >= 0, "a write");
    }
    f.group = good(H5Gcreate2(f.file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "group");
    hid_t scalar = H5Screate(H5S_SCALAR);
    H5Aclose(good(H5Acreate2(f.group, "units", H5T_STD_I32LE, scalar, H5P_DEFAULT, H5P_DEFAULT), "units"));
    H5Sclose(scalar);
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    f.texts = good(H5Dcreate2(f.file, "texts", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "texts");
    std::vector<const char *> words(COUNT, "word");
    require(H5Dwrite(f.texts, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, words.data()) >= 0, "texts are written");
    H5Tclose(text);
    H5Sclose(space);
    hid_t type = H5Tcopy(H5T_STD_I16LE);
    require(H5Tcommit2(f.file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0, "type");
    H5Tclose(type);
    require(H5Lcreate_external(other, "/there", f.file, "away", H5P_DEFAULT, H5P_DEFAULT) >= 0, "away");
    require(H5Lcreate_ud(f.file, "own", OWN_LINK, "x", 1, H5P_DEFAULT, H5P_DEFAULT) >= 0, "own");
}

// Operations on a file that is open for writing or reading.
void walk(const File &f, const std::string &how) {
    hsize_t position = 0;
    run(how + "H5Literate", [&] { return H5Literate2(f.file, H5_INDEX_NAME, H5_ITER_INC, &position, on_link, nullptr); });
    run(how + "H5Lvisit", [&] { return H5Lvisit2(f.file, H5_INDEX_NAME, H5_ITER_INC, on_link, nullptr); });
    run(how + "H5Ovisit", [&] { return H5Ovisit3(f.file, H5_INDEX_NAME, H5_ITER_INC, on_object, nullptr, H5O_INFO_BASIC); });
    run(how + "H5Aiterate", [&] { return H5Aiterate2(f.group, H5_INDEX_NAME, H5_ITER_INC, nullptr, on_attribute, nullptr); });

    // On datasets without chunks: HDF5 itself leaves a chunk locked if a conversion throws.
    hid_t dxpl = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_type_conv_cb(dxpl, on_overflow, nullptr);
    std::array<signed char, COUNT> bytes{};
    if (how == "written: ") {
        std::array<long long, COUNT> large{};
        large.fill(1LL << 40);
        run(how + "H5Dwrite, overflow", [&] {
            return H5Dwrite(f.dataset, H5T_NATIVE_LLONG, H5S_ALL, H5S_ALL, dxpl, large.data());
        });
    }
    run(how + "H5Dread, overflow", [&] {
        return H5Dread(f.dataset, H5T_NATIVE_SCHAR, H5S_ALL, H5S_ALL, dxpl, bytes.data());
    });
    H5Pclose(dxpl);

    H5Tregister(H5T_PERS_HARD, "mine", H5T_STD_I32LE, H5T_NATIVE_FLOAT, on_conversion);
    converts = false;
    std::array<float, COUNT> floats{};
    run(how + "H5Dread, conversion", [&] {
        return H5Dread(f.dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, floats.data());
    });
    converts = true;
    H5Tunregister(H5T_PERS_HARD, "mine", H5T_STD_I32LE, H5T_NATIVE_FLOAT, on_conversion);

    dxpl = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_vlen_mem_manager(dxpl, on_allocation, nullptr, on_free, nullptr);
    hid_t text = H5Dget_type(f.texts);
    std::array<char *, COUNT> words{};
    run(how + "H5Dread, allocation", [&] { return H5Dread(f.texts, text, H5S_ALL, H5S_ALL, dxpl, words.data()); });
    H5Tclose(text);
    H5Pclose(dxpl);

    hid_t lapl = H5Pcreate(H5P_LINK_ACCESS);
    hid_t files = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_elink_fapl(lapl, files);
    H5Pclose(files);
    H5Pset_elink_cb(lapl, on_external_link, nullptr);
    run(how + "an external link", [&] { return H5Oopen(f.file, "away", lapl) < 0 ? -1 : 0; });
    check_links(lapl);
    run(how + "H5Oexists_by_name", [&] { return H5Oexists_by_name(f.file, "away", lapl) < 0 ? -1 : 0; });
    check_links(lapl);
    run(how + "H5Gopen", [&] { return H5Gopen2(f.file, "own", lapl) < 0 ? -1 : 0; });
    check_links(lapl);
    H5Pclose(lapl);

    check_elements(f.dataset, f.values, "the elements are as before");
}

// Operations that need a file open for writing.
void change(const File &f, const char *library) {
    using WriteBlocks = herr_t (*)(hid_t, hid_t, int, const hsize_t **, const hsize_t **, hid_t, const void *);
    void *loaded = dlopen(library, RTLD_NOW);
    require(loaded != nullptr, "the library is loaded");
    auto write_blocks = reinterpret_cast<WriteBlocks>(dlsym(loaded, "H5Dwrite_n"));
    require(write_blocks != nullptr, "it has H5Dwrite_n");
    hid_t dxpl = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_type_conv_cb(dxpl, on_overflow, nullptr);
    const hsize_t start = 2, number = 1, *starts = &start, *counts = &number;
    const long long large = 1LL << 40;
    run("H5Dwrite_n", [&] { return write_blocks(f.dataset, H5T_NATIVE_LLONG, 1, &starts, &counts, dxpl, &large); });
    H5Pclose(dxpl);

    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk = 4, count = COUNT;
    H5Pset_chunk(dcpl, 1, &chunk);
    H5Pset_filter(dcpl, OWN_FILTER, H5Z_FLAG_MANDATORY, 0, nullptr);
    hid_t space = H5Screate_simple(1, &count, nullptr);
    run("H5Dcreate", [&] {
        return H5Dcreate2(f.file, "filtered", H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT) < 0 ? -1 : 0;
    });
    H5Sclose(space);
    H5Pclose(dcpl);
}

// These calls use no file, but a plug-in must not be in their way either.
void memory(const File &f) {
    hsize_t count = COUNT;
    hid_t space = H5Screate_simple(1, &count, nullptr);
    std::array<int, COUNT> values = f.values;
    run("H5Diterate", [&] { return H5Diterate(values.data(), H5T_NATIVE_INT, space, on_element, nullptr); });
    run("H5Dscatter", [&] { return H5Dscatter(on_scatter, nullptr, H5T_NATIVE_INT, space, values.data()); });
    run("H5Dgather", [&] {
        std::array<int, COUNT> room{};
        return H5Dgather(space, values.data(), H5T_NATIVE_INT, sizeof(int), room.data(), on_gather, nullptr);
    });
    H5Sclose(space);
}

// HDF5 itself does not continue after these: it leaves what it used locked.
void last(const File &f, const char *other) {
    hid_t ocpypl = H5Pcreate(H5P_OBJECT_COPY);
    H5Pset_copy_object(ocpypl, H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG);
    H5Padd_merge_committed_dtype_path(ocpypl, "/nowhere");
    H5Pset_mcdt_search_cb(ocpypl, on_search, nullptr);
    hid_t target = good(H5Fopen(other, H5F_ACC_RDWR, H5P_DEFAULT), "the other file");
    run("H5Ocopy", [&] { return H5Ocopy(f.file, "type", target, "copy", ocpypl, H5P_DEFAULT); });
    run("H5Dchunk_iter", [&] { return H5Dchunk_iter(f.chunked, H5P_DEFAULT, on_chunk, nullptr); });
}

void close(const File &f) {
    for (hid_t dataset : {f.dataset, f.chunked, f.texts}) {
        require(H5Dclose(dataset) >= 0, "a dataset is closed");
    }
    require(H5Gclose(f.group) >= 0, "the group is closed");
    require(H5Fclose(f.file) >= 0, "the file is closed");
}

} // namespace

int main(int argc, char **argv) {
    require(argc == 4, "three arguments");
    H5Eset_auto2(H5E_DEFAULT, print, stdout);
    const H5L_class_t links{H5L_LINK_CLASS_T_VERS, OWN_LINK, "mine", nullptr, nullptr, nullptr, on_own_link, nullptr, nullptr};
    require(H5Lregister(&links) >= 0, "the class of links");
    const H5Z_class2_t filters{H5Z_CLASS_T_VERS, OWN_FILTER, 1, 1, "mine", can_apply, nullptr, filter};
    require(H5Zregister(&filters) >= 0, "the filter");

    File f{};
    make(f, argv[1], argv[2]);
    walk(f, "written: ");
    change(f, argv[3]);
    memory(f);
    // The program continues to write.
    f.values[0] = 7;
    require(H5Dwrite(f.dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, f.values.data()) >= 0, "a later write");
    require(H5Fflush(f.file, H5F_SCOPE_LOCAL) >= 0, "a later flush");
    close(f);

    f.file = good(H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT), "the file is opened");
    f.group = good(H5Gopen2(f.file, "group", H5P_DEFAULT), "group");
    f.dataset = good(H5Dopen2(f.file, "a", H5P_DEFAULT), "a");
    f.chunked = good(H5Dopen2(f.file, "b", H5P_DEFAULT), "b");
    f.texts = good(H5Dopen2(f.file, "texts", H5P_DEFAULT), "texts");
    walk(f, "read: ");
    last(f, argv[2]);
    std::fflush(stdout);
    std::_Exit(0);
}
