/*
 * limits MODE EXPECTED LOG…: hosts with little. Each opening of an unknown log works, or fails with a sentence.
 * descriptors: no more than a few descriptors. processes: no more processes for this user, who is not root; the last log
 * is known. stdio: descriptors 0 to 2 are closed, in each combination.
 */
#include "host.h"

static void set_limit(int which, rlim_t soft)
{
    struct rlimit limit;
    REQUIRE(!getrlimit(which, &limit));
    limit.rlim_cur = soft;
    REQUIRE(!setrlimit(which, &limit));
}

/* Returns whether the log was opened. Its content must be right. */
static int try(const char *path, const struct contents *expected)
{
    struct contents got;
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) {
        return 0;
    }
    const int readable = read_all(file, &got);
    REQUIRE(!readable || is_same(&got, expected));
    REQUIRE(H5Fclose(file) >= 0);
    return readable;
}

static void few_descriptors(int logs, char **paths, const struct contents *expected)
{
    /* Loads the plug-in. */
    require_same(paths[0], expected);
    const unsigned open_now = descriptors();
    struct rlimit usual;
    REQUIRE(!getrlimit(RLIMIT_NOFILE, &usual));
    int failed = 0;
    for (int i = 1; i < logs; i++) {
        set_limit(RLIMIT_NOFILE, open_now + (rlim_t)(i - 1));
        if (!try(paths[i], expected)) {
            failed++;
            REQUIRE(says("descriptors") || says("Too many open files") || says("too many open files"));
        }
        set_limit(RLIMIT_NOFILE, usual.rlim_cur);
        REQUIRE(descriptors() == open_now);
        require_same(paths[i], expected);
    }
    REQUIRE(failed > 0 && failed < logs - 1);
}

static void no_processes(int logs, char **paths, const struct contents *expected)
{
    const char *known = paths[logs - 1];
    require_same(known, expected);
    struct rlimit usual;
    REQUIRE(!getrlimit(RLIMIT_NPROC, &usual));
    set_limit(RLIMIT_NPROC, 0);
    REQUIRE(fork() == -1 && errno == EAGAIN);
    require_same(known, expected);
    for (int i = 0; i < logs - 1; i++) {
        REQUIRE(!try(paths[i], expected));
        REQUIRE(says(paths[i]));
    }
    set_limit(RLIMIT_NPROC, usual.rlim_cur);
    for (int i = 0; i < logs; i++) {
        require_same(paths[i], expected);
    }
}

static uint64_t raw_contents(const char *path)
{
    unsigned char bytes[65536];
    uint64_t hash = 1;
    FILE *file = fopen(path, "r");
    REQUIRE(file);
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file));) {
        hash = mix(hash, bytes, got);
    }
    fclose(file);
    return hash;
}

/* Each combination in a process of its own, before HDF5 is first called. */
static void no_stdio(int logs, char **paths, const char *expected_path)
{
    REQUIRE(logs >= 7);
    for (int closed = 1; closed < 8; closed++) {
        const char *path = paths[closed - 1];
        const uint64_t raw = raw_contents(path);
        const pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (!pid) {
            for (int number = 0; number < 3; number++) {
                if (closed & 1 << number) {
                    close(number);
                }
            }
            const struct contents expected = contents_of(expected_path);
            require_same(path, &expected);
            require_same(path, &expected);
            exit(0);
        }
        require_success(pid);
        REQUIRE(raw_contents(path) == raw);
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 3);
    const char *mode = argv[1];
    const int logs = argc - 3;
    char **paths = argv + 3;
    if (!strcmp(mode, "stdio")) {
        no_stdio(logs, paths, argv[2]);
        return 0;
    }
    if (!strcmp(mode, "processes") && geteuid() == 0) {
        REQUIRE(!setgid(65534) && !setuid(65534));
    }
    keep_quiet();
    const struct contents expected = contents_of(argv[2]);
    if (!strcmp(mode, "descriptors")) {
        few_descriptors(logs, paths, &expected);
    } else {
        no_processes(logs, paths, &expected);
    }
    return 0;
}
