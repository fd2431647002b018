// A heat equation on a square plate. The plate is cut into strips of rows, one strip for each rank. Every few steps, each rank
// logs its strip of the frame, and then all ranks flush the log together. The same as examples/heat.rs, in C++ by the C interface:
// errors are exceptions, and a log that an exception leaves is given up as its last flush has left it.
//
//     mpicxx -std=c++17 heat.cpp $(pkg-config --cflags --libs h5logfs_writer) -o heat
//     mpirun -n 4 ./heat heat.h5
#include <array>
#include <charconv>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <h5logfs_writer.h>

namespace {

constexpr int side = 128;
constexpr long steps_per_frame = 20;
constexpr double diffusivity = 0.2;

const char *const usage =
    "Usage: heat [--steps NUMBER] FILE\n"
    "\n"
    "Computes a heat equation, and logs a frame every 20 steps to the new log FILE. A file of that name is\n"
    "an error. See resubmit.sh for jobs that are submitted again.\n"
    "\n"
    "Options:\n"
    "  --steps NUMBER   the number of steps (200)\n"
    "  -h, --help       prints this text\n";

void check(int status)
{
    if (status != H5LOGFS_OK) {
        throw std::runtime_error(h5logfs_last_error());
    }
}

// A log that is written.
class Log {
public:
    explicit Log(const std::string &path) { check(h5logfs_create(MPI_COMM_WORLD, path.c_str(), nullptr, &file)); }
    ~Log()
    {
        if (file != 0) {
            h5logfs_abandon(file);
        }
    }
    Log(const Log &) = delete;
    Log &operator=(const Log &) = delete;

    // A dataset of frames, none so far.
    template <std::size_t rank>
    h5logfs_id frames(const char *path, const std::array<uint64_t, rank> &frame)
    {
        auto dims = frame, max_dims = frame;
        dims[0] = 0;
        max_dims[0] = H5LOGFS_UNLIMITED;
        h5logfs_dataset_spec spec;
        check(h5logfs_dataset_spec_init(&spec, sizeof spec));
        spec.datatype = H5LOGFS_DOUBLE;
        spec.rank = rank;
        spec.dims = dims.data();
        spec.max_dims = max_dims.data();
        spec.chunk = rank > 1 ? frame.data() : nullptr;
        h5logfs_id dataset;
        check(h5logfs_dataset(file, path, &spec, &dataset));
        return dataset;
    }
    void describe(const char *object, const char *name, const char *text)
    {
        check(h5logfs_attribute_text(file, object, name, text));
    }
    void describe(const char *object, const char *name, double number)
    {
        check(h5logfs_attribute(file, object, name, H5LOGFS_DOUBLE, 0, nullptr, &number, sizeof number));
    }
    void flush() { check(h5logfs_flush(file)); }
    // Collective, so no destructor can do it: an exception may leave one rank alone.
    void close()
    {
        check(h5logfs_close(file));
        file = 0;
    }

private:
    h5logfs_id file = 0;
};

// The rows of one rank, with a row of each neighbour around them.
class Strip {
public:
    Strip(int rank, int ranks)
        : above(rank > 0 ? rank - 1 : MPI_PROC_NULL), below(rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL),
          first(side * rank / ranks), rows(side * (rank + 1) / ranks - first)
    {
        const auto is_hot = [](int at) { return at >= 48 && at < 80; };
        cells.assign(static_cast<std::size_t>(rows + 2) * side, 273.0);
        for (int y = first; y < first + rows; y++) {
            for (int x = 0; x < side; x++) {
                cells[at(y - first + 1, x)] = is_hot(y) && is_hot(x) ? 373.0 : 273.0;
            }
        }
    }

    void step()
    {
        exchange();
        old = cells;
        for (int row = 1; row <= rows; row++) {
            const int y = first + row - 1;
            for (int x = 1; x < side - 1 && y > 0 && y < side - 1; x++) {
                const double *here = &old[at(row, x)];
                const double around = here[-side] + here[side] + here[-1] + here[1];
                cells[at(row, x)] = *here + diffusivity * (around - 4.0 * *here);
            }
        }
    }

    // The strip must not change before the next flush: the library makes no copy of it.
    void lend(h5logfs_id dataset, uint64_t frame) const
    {
        const uint64_t start[3] = {frame, static_cast<uint64_t>(first), 0};
        const uint64_t count[3] = {1, static_cast<uint64_t>(rows), side};
        check(h5logfs_lend_block(dataset, start, count, &cells[at(1, 0)], sizeof(double) * rows * side));
    }

private:
    static std::size_t at(int row, int x) { return static_cast<std::size_t>(row) * side + x; }

    // Receives the neighbours' rows next to this strip. A strip at the edge has one neighbour only.
    void exchange()
    {
        double *top = &cells[at(1, 0)], *bottom = &cells[at(rows, 0)];
        MPI_Sendrecv(top, side, MPI_DOUBLE, above, 0, bottom + side, side, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(bottom, side, MPI_DOUBLE, below, 0, top - side, side, MPI_DOUBLE, above, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }

    int above, below; // ranks of the neighbours
    int first, rows;
    std::vector<double> cells, old;
};

struct Arguments {
    std::string path;
    long steps = 200;
    bool help = false;
};

Arguments parse(const std::vector<std::string> &words)
{
    Arguments given;
    for (auto word = words.begin(); word != words.end(); ++word) {
        if (*word == "-h" || *word == "--help") {
            given.help = true;
            return given;
        } else if (*word == "--steps") {
            const std::string number = ++word != words.end() ? *word : "";
            const char *end = number.data() + number.size();
            const auto read = std::from_chars(number.data(), end, given.steps);
            if (read.ec != std::errc() || read.ptr != end || given.steps < 0) {
                throw std::invalid_argument("--steps needs a number");
            }
        } else if (!word->empty() && word->front() == '-') {
            throw std::invalid_argument("unknown option");
        } else if (!std::exchange(given.path, *word).empty()) {
            throw std::invalid_argument("more than one file");
        }
    }
    if (given.path.empty()) {
        throw std::invalid_argument("the name of the file is missing");
    }
    return given;
}

void simulate(Log &log, long steps)
{
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    log.describe("/", "title", "heat on a plate");
    const auto temperature = log.frames<3>("/temperature", {1, side, side});
    log.describe("/temperature", "units", "K");
    log.describe("/temperature", "diffusivity", diffusivity);
    const auto time = log.frames<1>("/time", {1});

    Strip strip(rank, ranks);
    for (long n = 1; n <= steps; n++) {
        strip.step();
        if (n % steps_per_frame != 0) {
            continue;
        }
        const uint64_t frame = n / steps_per_frame - 1, one = 1;
        const uint64_t dims[3] = {frame + 1, side, side};
        check(h5logfs_set_extent(temperature, dims));
        check(h5logfs_set_extent(time, dims));
        strip.lend(temperature, frame);
        if (rank == 0) {
            const auto now = static_cast<double>(n);
            check(h5logfs_write_block(time, &frame, &one, &now, sizeof now));
        }
        // Once this returns, the frame stays in the log, even if the job is killed.
        log.flush();
    }
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    // All ranks have the same arguments, so one of them speaks for all.
    Arguments given;
    try {
        given = parse({argv + 1, argv + argc});
    } catch (const std::invalid_argument &wrong) {
        if (rank == 0) {
            std::cerr << "heat: " << wrong.what() << "\n\n" << usage;
        }
        MPI_Finalize();
        return 2;
    }
    if (given.help) {
        if (rank == 0) {
            std::cout << usage;
        }
        MPI_Finalize();
        return 0;
    }

    bool is_open = false;
    try {
        Log log(given.path);
        is_open = true;
        simulate(log, given.steps);
        log.close();
    } catch (const std::exception &error) {
        // All ranks fail to create the log for the same reason: the file is there already, for example. Later, a rank that
        // fails may be the only one.
        if (rank == 0 || is_open) {
            std::cerr << "heat: " << error.what() << "\n";
        }
        if (is_open) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_Finalize();
        return 1;
    }
    MPI_Finalize();
    return 0;
}
