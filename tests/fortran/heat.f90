! heat FILE: an MPI program of Fortran 90 that uses HDF5's own module. It creates FILE with groups, attributes, and datasets
! of fixed and growing extent, and opens it again to append.
program heat
  use hdf5
  use mpi
  implicit none

  integer, parameter :: columns = 10, rows = 8, steps = 4
  integer :: error, rank, ranks, step
  character(len=512) :: path
  integer(hid_t) :: file

  call mpi_init(error)
  call mpi_comm_rank(mpi_comm_world, rank, error)
  call mpi_comm_size(mpi_comm_world, ranks, error)
  call get_command_argument(1, path)
  call h5open_f(error)
  call require(error)

  call create(file)
  do step = 1, steps / 2
    call write_step(file, step)
  end do
  call h5fflush_f(file, H5F_SCOPE_GLOBAL_F, error)
  call require(error)
  call h5fclose_f(file, error)
  call require(error)

  call open_again(file, H5F_ACC_RDWR_F)
  do step = steps / 2 + 1, steps
    call write_step(file, step)
  end do
  call h5fclose_f(file, error)
  call require(error)

  call open_again(file, H5F_ACC_RDONLY_F)
  call read_back(file)
  call h5fclose_f(file, error)
  call require(error)
  call h5close_f(error)
  call mpi_finalize(error)

contains

  subroutine require(status)
    integer, intent(in) :: status
    if (status < 0) then
      write (0, *) 'rank', rank, ': a call of HDF5 fails'
      call mpi_abort(mpi_comm_world, 1, error)
    end if
  end subroutine

  subroutine access_list(plist)
    integer(hid_t), intent(out) :: plist
    call h5pcreate_f(H5P_FILE_ACCESS_F, plist, error)
    call require(error)
    call h5pset_fapl_mpio_f(plist, mpi_comm_world, mpi_info_null, error)
    call require(error)
  end subroutine

  subroutine open_again(id, flags)
    integer(hid_t), intent(out) :: id
    integer, intent(in) :: flags
    integer(hid_t) :: plist
    call access_list(plist)
    call h5fopen_f(trim(path), flags, id, error, access_prp=plist)
    call require(error)
    call h5pclose_f(plist, error)
  end subroutine

  subroutine create(id)
    integer(hid_t), intent(out) :: id
    integer(hid_t) :: plist, group, space, set, attribute, text
    integer(hsize_t) :: none(3), most(3), chunk(3), whole(2), one(1)
    call access_list(plist)
    call h5fcreate_f(trim(path), H5F_ACC_TRUNC_F, id, error, access_prp=plist)
    call require(error)
    call h5pclose_f(plist, error)
    call h5gcreate_f(id, 'fields', group, error)
    call require(error)

    none = [int(columns, hsize_t), int(rows, hsize_t), 0_hsize_t]
    most = [int(columns, hsize_t), int(rows, hsize_t), H5S_UNLIMITED_F]
    chunk = [int(columns, hsize_t), 3_hsize_t, 2_hsize_t]
    call h5screate_simple_f(3, none, space, error, most)
    call h5pcreate_f(H5P_DATASET_CREATE_F, plist, error)
    call h5pset_chunk_f(plist, 3, chunk, error)
    call h5dcreate_f(group, 'temperature', H5T_IEEE_F64LE, space, set, error, dcpl_id=plist)
    call require(error)
    call h5sclose_f(space, error)
    call h5pclose_f(plist, error)

    one = 1
    call h5screate_f(H5S_SCALAR_F, space, error)
    call h5tcopy_f(H5T_FORTRAN_S1, text, error)
    call h5tset_size_f(text, 6_size_t, error)
    call h5acreate_f(set, 'units', text, space, attribute, error)
    call require(error)
    call h5awrite_f(attribute, text, 'kelvin', one, error)
    call require(error)
    call h5aclose_f(attribute, error)
    call h5tclose_f(text, error)
    call h5sclose_f(space, error)
    call h5dclose_f(set, error)

    whole = [int(columns, hsize_t), int(ranks, hsize_t)]
    call h5screate_simple_f(2, whole, space, error)
    call h5dcreate_f(id, 'ranks', H5T_STD_I32BE, space, set, error)
    call require(error)
    call h5sclose_f(space, error)
    call write_own(set)
    call h5dclose_f(set, error)
    call h5gclose_f(group, error)
  end subroutine

  ! A column of integers for each rank.
  subroutine write_own(set)
    integer(hid_t), intent(in) :: set
    integer(hid_t) :: space, memory
    integer(hsize_t) :: start(2), size(2), length(1)
    integer :: values(columns), i
    start = [0_hsize_t, int(rank, hsize_t)]
    size = [int(columns, hsize_t), 1_hsize_t]
    length = columns
    values = [(100 * rank + i, i = 1, columns)]
    call h5dget_space_f(set, space, error)
    call h5sselect_hyperslab_f(space, H5S_SELECT_SET_F, start, size, error)
    call h5screate_simple_f(1, length, memory, error)
    call h5dwrite_f(set, H5T_NATIVE_INTEGER, values, length, error, memory, space)
    call require(error)
    call h5sclose_f(memory, error)
    call h5sclose_f(space, error)
  end subroutine

  ! The rows of a rank go from first + 1 to last.
  subroutine share(first, last)
    integer, intent(out) :: first, last
    first = rows * rank / ranks
    last = rows * (rank + 1) / ranks
  end subroutine

  subroutine write_step(id, step)
    integer(hid_t), intent(in) :: id
    integer, intent(in) :: step
    integer(hid_t) :: set, space, memory, plist
    integer(hsize_t) :: extent(3), start(3), size(3)
    real(8), allocatable :: values(:, :)
    integer :: first, last, i, j
    call share(first, last)
    allocate (values(columns, last - first))
    do j = 1, last - first
      do i = 1, columns
        values(i, j) = 1000 * step + 10 * (first + j) + 0.5d0 * i
      end do
    end do
    extent = [int(columns, hsize_t), int(rows, hsize_t), int(step, hsize_t)]
    start = [0_hsize_t, int(first, hsize_t), int(step - 1, hsize_t)]
    size = [int(columns, hsize_t), int(last - first, hsize_t), 1_hsize_t]
    call h5dopen_f(id, 'fields/temperature', set, error)
    call require(error)
    call h5dset_extent_f(set, extent, error)
    call require(error)
    call h5dget_space_f(set, space, error)
    call h5sselect_hyperslab_f(space, H5S_SELECT_SET_F, start, size, error)
    call h5screate_simple_f(2, size(1:2), memory, error)
    call h5pcreate_f(H5P_DATASET_XFER_F, plist, error)
    call h5pset_dxpl_mpio_f(plist, H5FD_MPIO_COLLECTIVE_F, error)
    call h5dwrite_f(set, H5T_NATIVE_DOUBLE, values, size(1:2), error, memory, space, plist)
    call require(error)
    call h5pclose_f(plist, error)
    call h5sclose_f(memory, error)
    call h5sclose_f(space, error)
    call h5dclose_f(set, error)
    deallocate (values)
  end subroutine

  subroutine read_back(id)
    integer(hid_t), intent(in) :: id
    integer(hid_t) :: set
    integer(hsize_t) :: extent(3)
    real(8) :: values(columns, rows, steps)
    integer :: i, j, k
    extent = [int(columns, hsize_t), int(rows, hsize_t), int(steps, hsize_t)]
    call h5dopen_f(id, 'fields/temperature', set, error)
    call require(error)
    call h5dread_f(set, H5T_NATIVE_DOUBLE, values, extent, error)
    call require(error)
    do k = 1, steps
      do j = 1, rows
        do i = 1, columns
          if (values(i, j, k) /= 1000 * k + 10 * j + 0.5d0 * i) then
            write (0, *) 'rank', rank, ': not what was written at', i, j, k
            call mpi_abort(mpi_comm_world, 1, error)
          end if
        end do
      end do
    end do
    call h5dclose_f(set, error)
  end subroutine

end program
