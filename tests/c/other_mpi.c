/*
 * other_mpi FOLDER: a program with another MPI than that of the library. Each call must fail, and the first one says
 * why.
 */
#include <h5logfs_writer.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    char path[4096];
    snprintf(path, sizeof path, "%s/log.h5", argv[1]);
    h5logfs_id file = 7;
    const int created = h5logfs_create(MPI_COMM_WORLD, path, NULL, &file);
    printf("rank %d of %d: %d %s\n", rank, ranks, created, h5logfs_last_error());
    const int fortran = h5logfs_open_f(MPI_Comm_c2f(MPI_COMM_WORLD), path, NULL, &file);
    const int flushed = h5logfs_flush(file);
    const int closed = h5logfs_close(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return created == H5LOGFS_ERR_MPI && fortran == H5LOGFS_ERR_MPI && file == 0 && flushed && closed ? 0 : 1;
}
