! steps FILE NOTES ranks|alone: MPI ranks, or one process without MPI, write steps to a file with HDF5's own module, and never
! flush it, until they are killed: those of tests/c/steps, which tell in NOTES when they have written which step.
program steps
  use, intrinsic :: iso_c_binding
  use hdf5
  use mpi
  implicit none

  interface
    subroutine notes_begin(directory, rank) bind(c)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: directory(*)
      integer(c_int), value :: rank
    end subroutine
    subroutine notes_ready(directory) bind(c)
      import :: c_char
      character(kind=c_char), intent(in) :: directory(*)
    end subroutine
    subroutine notes_step_begins() bind(c)
    end subroutine
    subroutine notes_step_ends(step, milliseconds) bind(c)
      import :: c_int
      integer(c_int), value :: step, milliseconds
    end subroutine
  end interface

  integer, parameter :: width = 1200
  integer :: error, rank, ranks, step
  logical :: is_parallel
  character(len=512) :: path, notes, how
  integer(hid_t) :: file, history, transfer

  call get_command_argument(1, path)
  call get_command_argument(2, notes)
  call get_command_argument(3, how)
  is_parallel = how == 'ranks'
  rank = 0
  ranks = 1
  if (is_parallel) then
    call mpi_init(error)
    call mpi_comm_rank(mpi_comm_world, rank, error)
    call mpi_comm_size(mpi_comm_world, ranks, error)
  end if
  call notes_begin(trim(notes)//c_null_char, int(rank, c_int))
  if (is_parallel) call mpi_barrier(mpi_comm_world, error)
  if (rank == 0) call notes_ready(trim(notes)//c_null_char)

  call h5open_f(error)
  call require(error)
  call create()
  step = 0
  do
    call notes_step_begins()
    call write_step(step)
    if (mod(step, 4) == 3) call mark(step)
    call notes_step_ends(int(step, c_int), 10_c_int)
    step = step + 1
  end do

contains

  subroutine require(status)
    integer, intent(in) :: status
    if (status < 0) then
      write (0, *) 'rank', rank, ': a call of HDF5 fails'
      stop 1
    end if
  end subroutine

  subroutine create()
    integer(hid_t) :: plist, space
    integer(hsize_t) :: none(2), most(2), chunk(2)
    call h5pcreate_f(H5P_FILE_ACCESS_F, plist, error)
    if (is_parallel) call h5pset_fapl_mpio_f(plist, mpi_comm_world, mpi_info_null, error)
    call require(error)
    call h5fcreate_f(trim(path), H5F_ACC_TRUNC_F, file, error, access_prp=plist)
    call require(error)
    call h5pclose_f(plist, error)
    none = [int(width * ranks, hsize_t), 0_hsize_t]
    most = [int(width * ranks, hsize_t), H5S_UNLIMITED_F]
    chunk = [int(width * ranks, hsize_t), 1_hsize_t]
    call h5screate_simple_f(2, none, space, error, most)
    call h5pcreate_f(H5P_DATASET_CREATE_F, plist, error)
    call h5pset_chunk_f(plist, 2, chunk, error)
    call h5dcreate_f(file, 'history', H5T_STD_I32LE, space, history, error, dcpl_id=plist)
    call require(error)
    call h5sclose_f(space, error)
    call h5pclose_f(plist, error)
    call h5pcreate_f(H5P_DATASET_XFER_F, transfer, error)
    if (is_parallel) call h5pset_dxpl_mpio_f(transfer, H5FD_MPIO_COLLECTIVE_F, error)
    call require(error)
  end subroutine

  ! All ranks together.
  subroutine write_step(step)
    integer, intent(in) :: step
    integer(hid_t) :: space, memory
    integer(hsize_t) :: extent(2), start(2), size(2), length(1)
    integer :: elements(width), i
    elements = [(step * 1000 + rank * width + i - 1, i = 1, width)]
    extent = [int(width * ranks, hsize_t), int(step + 1, hsize_t)]
    start = [int(rank * width, hsize_t), int(step, hsize_t)]
    size = [int(width, hsize_t), 1_hsize_t]
    length = width
    call h5dset_extent_f(history, extent, error)
    call require(error)
    call h5dget_space_f(history, space, error)
    call h5sselect_hyperslab_f(space, H5S_SELECT_SET_F, start, size, error)
    call h5screate_simple_f(1, length, memory, error)
    call h5dwrite_f(history, H5T_NATIVE_INTEGER, elements, length, error, memory, space, transfer)
    call require(error)
    call h5sclose_f(memory, error)
    call h5sclose_f(space, error)
  end subroutine

  subroutine mark(step)
    integer, intent(in) :: step
    integer(hid_t) :: group, space, attribute
    integer(hsize_t) :: one(1)
    character(len=16) :: name
    one = 1
    write (name, '(a, i0)') 'g', step
    call h5gcreate_f(file, trim(name), group, error)
    call require(error)
    call h5screate_f(H5S_SCALAR_F, space, error)
    call h5acreate_f(group, 'step', H5T_STD_I32LE, space, attribute, error)
    call require(error)
    call h5awrite_f(attribute, H5T_NATIVE_INTEGER, step, one, error)
    call require(error)
    call h5aclose_f(attribute, error)
    call h5sclose_f(space, error)
    call h5gclose_f(group, error)
  end subroutine

end program
