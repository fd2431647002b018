! The program of the user guide: writes run.h5 where it is started.
program run
  use mpi_f08
  use h5logfs
  use, intrinsic :: iso_c_binding
  implicit none
  integer, parameter :: cells = 1000
  integer(h5logfs_id) :: file, pressure
  integer(h5logfs_size) :: all, step
  integer :: rank, ranks
  real(c_double), target :: values(cells)

  call mpi_init()
  call mpi_comm_rank(mpi_comm_world, rank)
  call mpi_comm_size(mpi_comm_world, ranks)
  all = cells * ranks
  call h5logfs_create(mpi_comm_world, 'run.h5', file)
  call h5logfs_dataset(file, '/air/pressure', H5LOGFS_DOUBLE, [all, 0_h5logfs_size], pressure, max_dims=[all, H5LOGFS_UNLIMITED])
  call h5logfs_attribute_text(file, '/air/pressure', 'units', 'Pa')
  do step = 0, 9
    values = 1d5 + step
    call h5logfs_set_extent(pressure, [all, step + 1])
    call h5logfs_write_block(pressure, [int(cells * rank, h5logfs_size), step], [int(cells, h5logfs_size), 1_h5logfs_size], &
      h5logfs_data(values))
    call h5logfs_flush(file)
  end do
  call h5logfs_close(file)
  call mpi_finalize()
end program
