/*
 * Counts what a program asks of MPI: loaded before it, by the profiling interface. A call of MPI_Pcontrol ends a phase with
 * that number, of which each rank prints its calls:
 *
 *     calls PHASE RANK NAME NUMBER BYTES
 *
 * BYTES are those that this rank gives, or that it takes where it is the root of a gather.
 */
#include <mpi.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { KINDS = 20 };

static struct {
    const char *name;
    long long calls, bytes;
} counted[KINDS];

static void count(const char *name, long long bytes)
{
    int i = 0;
    while (i < KINDS - 1 && counted[i].name && strcmp(counted[i].name, name))
        i++;
    counted[i].name = name;
    counted[i].calls++;
    counted[i].bytes += bytes;
}

static long long bytes_of(int number, MPI_Datatype datatype)
{
    int size = 0;
    PMPI_Type_size(datatype, &size);
    return (long long)number * size;
}

int MPI_Pcontrol(const int phase, ...)
{
    char text[4096];
    int rank, len = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < KINDS && counted[i].name; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "calls %d %d %s %lld %lld\n", phase, rank, counted[i].name,
                        counted[i].calls, counted[i].bytes);
    /* One write, so that lines of different ranks do not mix. */
    fwrite(text, 1, (size_t)len, stdout);
    fflush(stdout);
    memset(counted, 0, sizeof counted);
    return MPI_SUCCESS;
}

int MPI_Allreduce(const void *from, void *to, int number, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    count("Allreduce", bytes_of(number, type));
    return PMPI_Allreduce(from, to, number, type, op, comm);
}

int MPI_Exscan(const void *from, void *to, int number, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    count("Exscan", bytes_of(number, type));
    return PMPI_Exscan(from, to, number, type, op, comm);
}

int MPI_Bcast(void *buffer, int number, MPI_Datatype type, int root, MPI_Comm comm)
{
    count("Bcast", bytes_of(number, type));
    return PMPI_Bcast(buffer, number, type, root, comm);
}

int MPI_Gather(const void *from, int number, MPI_Datatype type, void *to, int to_number, MPI_Datatype to_type, int root,
               MPI_Comm comm)
{
    int rank, ranks;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &ranks);
    count("Gather", rank == root ? ranks * bytes_of(to_number, to_type) : bytes_of(number, type));
    return PMPI_Gather(from, number, type, to, to_number, to_type, root, comm);
}

/* The bytes are not counted, because they differ between ranks. */
int MPI_Gatherv(const void *from, int number, MPI_Datatype type, void *to, const int *numbers, const int *places,
                MPI_Datatype to_type, int root, MPI_Comm comm)
{
    count("Gatherv", 0);
    return PMPI_Gatherv(from, number, type, to, numbers, places, to_type, root, comm);
}

int MPI_Barrier(MPI_Comm comm)
{
    count("Barrier", 0);
    return PMPI_Barrier(comm);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    count("Ibarrier", 0);
    return PMPI_Ibarrier(comm, request);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
    count("Comm_dup", 0);
    return PMPI_Comm_dup(comm, made);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    count("Comm_split", 0);
    return PMPI_Comm_split(comm, color, key, made);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made)
{
    count("Comm_split_type", 0);
    return PMPI_Comm_split_type(comm, type, key, info, made);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    count("Comm_free", 0);
    return PMPI_Comm_free(comm);
}

/* The number of ranks that open it together. */
int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file)
{
    int ranks;
    PMPI_Comm_size(comm, &ranks);
    count("File_open", ranks);
    return PMPI_File_open(comm, name, mode, info, file);
}

int MPI_File_close(MPI_File *file)
{
    count("File_close", 0);
    return PMPI_File_close(file);
}

int MPI_File_sync(MPI_File file)
{
    count("File_sync", 0);
    return PMPI_File_sync(file);
}

int MPI_File_write_at(MPI_File file, MPI_Offset at, const void *buffer, int number, MPI_Datatype type, MPI_Status *status)
{
    count("File_write_at", bytes_of(number, type));
    return PMPI_File_write_at(file, at, buffer, number, type, status);
}
