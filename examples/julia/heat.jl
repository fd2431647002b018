# A heat equation on a square plate. The plate is cut into strips of rows, one strip for each rank. Every few steps, each rank logs
# its strip of the frame, and then all ranks flush the log together. The same as examples/heat.rs, by the C interface.
#
#     mpirun -n 4 julia heat.jl heat.h5
#
# The first lines of code name the two libraries; the loader looks for them (LD_LIBRARY_PATH). MPI is called by its C interface, so
# no package is needed. The handles in the module `MPI` are those of Open MPI. With MPI.jl, any MPI will do: its MPI.Init, MPI.Comm_rank,
# MPI.Sendrecv! and MPI.COMM_WORLD.val take the place of that module. This was run with Julia 1.5 and Open MPI 4.1, without MPI.jl.
#
# HDF5 counts dimensions from the slowest to the fastest, Julia the other way round: the cells of a strip are [x, y] here, and
# (y, x) in the log.

module MPI
const library = "libmpi.so.40"
world() = cglobal((:ompi_mpi_comm_world, library))
double() = cglobal((:ompi_mpi_double, library))
# Of a rank that is no neighbour of the strip at the edge: nothing is sent, and nothing comes.
const NOBODY = Cint(-2)

init() = @ccall library.MPI_Init(C_NULL::Ptr{Cvoid}, C_NULL::Ptr{Cvoid})::Cint
finish() = @ccall library.MPI_Finalize()::Cint
abort() = @ccall library.MPI_Abort(world()::Ptr{Cvoid}, 1::Cint)::Cint
function rank_and_size()
    rank, size = Ref{Cint}(), Ref{Cint}()
    @ccall library.MPI_Comm_rank(world()::Ptr{Cvoid}, rank::Ref{Cint})::Cint
    @ccall library.MPI_Comm_size(world()::Ptr{Cvoid}, size::Ref{Cint})::Cint
    rank[], size[]
end
# Sends some numbers to one rank, and receives as many from another one.
function exchange(sent, to, received, from)
    @ccall library.MPI_Sendrecv(
        sent::Ptr{Float64}, length(sent)::Cint, double()::Ptr{Cvoid}, to::Cint, 0::Cint,
        received::Ptr{Float64}, length(received)::Cint, double()::Ptr{Cvoid}, from::Cint, 0::Cint,
        world()::Ptr{Cvoid}, C_NULL::Ptr{Cvoid})::Cint
end
end

# The writer of h5logfs: what of include/h5logfs_writer.h is needed here.
module Writer
import ..MPI
const library = "libh5logfs_writer.so.0"
const Id = Int64
const DOUBLE = Id(10)
const UNLIMITED = typemax(UInt64)

# Fails with what the library says of its last error.
function check(status::Cint)
    status == 0 || error(unsafe_string(@ccall library.h5logfs_last_error()::Cstring))
end

# struct h5logfs_dataset_spec
mutable struct Spec
    size::Csize_t
    datatype::Id
    rank::Cint
    deflate::Cint
    shuffle::Cint
    fletcher32::Cint
    dims::Ptr{UInt64}
    max_dims::Ptr{UInt64}
    chunk::Ptr{UInt64}
    fill::Ptr{Cvoid}
    function Spec()
        spec = new()
        check(@ccall library.h5logfs_dataset_spec_init(spec::Ref{Spec}, sizeof(Spec)::Csize_t)::Cint)
        spec
    end
end

function create(path)
    file = Ref{Id}()
    check(@ccall library.h5logfs_create(MPI.world()::Ptr{Cvoid}, path::Cstring, C_NULL::Ptr{Cvoid}, file::Ref{Id})::Cint)
    file[]
end
flush(file) = check(@ccall library.h5logfs_flush(file::Id)::Cint)
close(file) = check(@ccall library.h5logfs_close(file::Id)::Cint)

# A dataset of frames of these sides, none so far.
function frames(file, path, sides...)
    dims, max_dims, chunk = UInt64[0, sides...], UInt64[UNLIMITED, sides...], UInt64[1, sides...]
    dataset, spec = Ref{Id}(), Spec()
    GC.@preserve dims max_dims chunk begin
        spec.datatype, spec.rank = DOUBLE, length(dims)
        spec.dims, spec.max_dims = pointer(dims), pointer(max_dims)
        spec.chunk = isempty(sides) ? C_NULL : pointer(chunk)
        check(@ccall library.h5logfs_dataset(file::Id, path::Cstring, spec::Ref{Spec}, dataset::Ref{Id})::Cint)
    end
    dataset[]
end
extend(dataset, dims) = check(@ccall library.h5logfs_set_extent(dataset::Id, dims::Ptr{UInt64})::Cint)

# Copies the elements. `start` and `count` are in the order of HDF5.
function write_block(dataset, start, count, elements::Array{Float64})
    check(@ccall library.h5logfs_write_block(
        dataset::Id, start::Ptr{UInt64}, count::Ptr{UInt64}, elements::Ptr{Float64}, sizeof(elements)::Csize_t)::Cint)
end

function describe(file, object, name, text::String)
    check(@ccall library.h5logfs_attribute_text(file::Id, object::Cstring, name::Cstring, text::Cstring)::Cint)
end
function describe(file, object, name, number::Float64)
    value = Ref(number)
    check(@ccall library.h5logfs_attribute(
        file::Id, object::Cstring, name::Cstring, DOUBLE::Id, 0::Cint, C_NULL::Ptr{UInt64}, value::Ref{Float64},
        sizeof(number)::Csize_t)::Cint)
end
end

const SIDE, STEPS, STEPS_PER_FRAME, DIFFUSIVITY = 128, 200, 20, 0.2

# The rows of one rank, with a row of each neighbour around them.
struct Strip
    above::Cint
    below::Cint
    first::Int
    rows::Int
    cells::Matrix{Float64}
end

function Strip(rank, ranks)
    first = SIDE * rank ÷ ranks
    rows = SIDE * (rank + 1) ÷ ranks - first
    hot(at) = 48 <= at < 80
    own(row) = 1 <= row <= rows
    cells = [own(row) && hot(first + row - 1) && hot(x) ? 373.0 : 273.0 for x in 0:SIDE-1, row in 0:rows+1]
    Strip(rank > 0 ? rank - 1 : MPI.NOBODY, rank < ranks - 1 ? rank + 1 : MPI.NOBODY, first, rows, cells)
end

# Receives the neighbours' rows next to this strip. A strip at the edge has one neighbour only.
function exchange(strip)
    # Row 0 is the second index 1.
    row(number) = strip.cells[:, number+1]
    upper, lower = row(0), row(strip.rows + 1)
    MPI.exchange(row(1), strip.above, lower, strip.below)
    MPI.exchange(row(strip.rows), strip.below, upper, strip.above)
    strip.cells[:, 1] = upper
    strip.cells[:, end] = lower
end

function step(strip)
    exchange(strip)
    old = copy(strip.cells)
    for row in 1:strip.rows
        0 < strip.first + row - 1 < SIDE - 1 || continue
        for x in 2:SIDE-1
            here = old[x, row+1]
            around = old[x, row] + old[x, row+2] + old[x-1, row+1] + old[x+1, row+1]
            strip.cells[x, row+1] = here + DIFFUSIVITY * (around - 4.0 * here)
        end
    end
end

function simulate(path)
    rank, ranks = MPI.rank_and_size()
    file = Writer.create(path)
    Writer.describe(file, "/", "title", "heat on a plate")
    temperature = Writer.frames(file, "/temperature", SIDE, SIDE)
    Writer.describe(file, "/temperature", "units", "K")
    Writer.describe(file, "/temperature", "diffusivity", DIFFUSIVITY)
    time = Writer.frames(file, "/time")
    strip = Strip(rank, ranks)
    for n in 1:STEPS
        step(strip)
        n % STEPS_PER_FRAME == 0 || continue
        frame = n ÷ STEPS_PER_FRAME - 1
        Writer.extend(temperature, UInt64[frame+1, SIDE, SIDE])
        Writer.extend(time, UInt64[frame+1])
        Writer.write_block(temperature, UInt64[frame, strip.first, 0], UInt64[1, strip.rows, SIDE], strip.cells[:, 2:end-1])
        rank == 0 && Writer.write_block(time, UInt64[frame], UInt64[1], [Float64(n)])
        # Once this returns, the frame stays in the log, even if the job is killed.
        Writer.flush(file)
    end
    Writer.close(file)
end

function main(arguments)
    if length(arguments) != 1 || startswith(arguments[1], "-")
        println(stderr, "Usage: julia heat.jl FILE")
        return 2
    end
    MPI.init()
    try
        simulate(arguments[1])
    catch error
        # Another rank may wait for this one.
        println(stderr, "heat.jl: ", sprint(showerror, error))
        MPI.abort()
    end
    MPI.finish()
    0
end

exit(main(ARGS))
