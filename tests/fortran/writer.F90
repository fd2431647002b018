! writer FILE: a Fortran MPI program that writes a log with the module h5logfs, and reopens it. With -DOLD_MPI it uses the module
! mpi in place of mpi_f08. tests/fortran/writer.py knows the content of the file.
program writer
#ifdef OLD_MPI
  use mpi
#else
  use mpi_f08
#endif
  use, intrinsic :: iso_c_binding
  use h5logfs
  implicit none

  integer, parameter :: cells = 5, steps = 3
  integer :: rank, ranks, error
  character(len=512) :: path
  integer(h5logfs_id) :: file

  call mpi_init(error)
  call mpi_comm_rank(mpi_comm_world, rank, error)
  call mpi_comm_size(mpi_comm_world, ranks, error)
  call get_command_argument(1, path)
  call create
  call open_again
  call mpi_finalize(error)

contains

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (.not. holds) then
      write (0, *) 'rank', rank, ': not so: ', what, ': ', h5logfs_last_error()
      call mpi_abort(mpi_comm_world, 1, error)
    end if
  end subroutine

  logical function lends()
    lends = mod(rank, 2) == 1
  end function

  ! A Fortran number as a library number.
  pure integer(h5logfs_size) function n(number)
    integer, intent(in) :: number
    n = int(number, h5logfs_size)
  end function

  subroutine create
    type(h5logfs_options) :: options
    integer(h5logfs_id) :: pressure, other
    integer(h5logfs_size), allocatable :: extent(:)
    integer(h5logfs_size) :: first, rows
    integer(c_int64_t) :: bytes
    real(c_double), target :: values(cells)
    real(c_double), target, save :: lent(cells)
    integer(c_int), target :: levels(2, 3), one
    logical :: is_there
    integer :: step, status

    call h5logfs_options_init(options)
    options%subfiles = 2
    options%fsync = H5LOGFS_FSYNC_NONE
    call h5logfs_create(mpi_comm_world, path, file, options)

    call h5logfs_group(file, '/air')
    call h5logfs_dataset(file, '/air/pressure', H5LOGFS_DOUBLE, [n(cells * ranks), 0_h5logfs_size], pressure, &
      max_dims=[n(cells * ranks), H5LOGFS_UNLIMITED], chunk=[n(cells), n(2)], deflate=3, shuffle=.true.)
    call h5logfs_attribute_text(file, '/air/pressure', 'units', 'Pa')
    call h5logfs_attribute_texts(file, '/air', 'axes', [character(len=4) :: 'time', 'x'])
    levels = reshape([1, 2, 3, 4, 5, 6], [2, 3])
    one = 42
    call h5logfs_attribute(file, '/air', 'levels', H5LOGFS_INT32, h5logfs_data(levels), [n(2), n(3)])
    call h5logfs_attribute(file, '/air', 'one', H5LOGFS_INT32, h5logfs_data(one))
    call h5logfs_exists(file, '/air/pressure', is_there)
    call expect(is_there, 'the dataset is there')
    call h5logfs_exists(file, '/air/humidity', is_there)
    call expect(.not. is_there, 'another one is not')
    call scales(pressure)

    do step = 1, steps - 1
      call h5logfs_set_extent(pressure, [n(cells * ranks), n(step)])
      values = 100 * step + rank
      lent = values
      if (step == 1) then
        call h5logfs_write_block(pressure, [n(cells * rank), n(step - 1)], [n(cells), n(1)], h5logfs_data(values))
        call h5logfs_buffered(file, bytes)
        call expect(bytes >= 8 * cells, 'the values are in the buffer')
      else
        call h5logfs_lend_block(pressure, [n(cells * rank), n(step - 1)], [n(cells), n(1)], h5logfs_data(lent))
      end if
      call h5logfs_flush(file)
    end do
    call h5logfs_get_extent(pressure, extent)
    call expect(all(extent == [n(cells * ranks), n(steps - 1)]), 'the extent is the one that was set')

    call selections
    call events(first, rows)
    call ghosts
    call structs

    ! A deliberate error, and its report at the next flush.
    call h5logfs_dataset(file, '/refused', H5LOGFS_DOUBLE, [n(cells)], other)
    call h5logfs_write_block(other, [n(cells)], [n(cells)], h5logfs_data(values), status)
    call expect(status == H5LOGFS_ERR_WRITE, 'a write outside of the extent is an error')
    call expect(index(h5logfs_last_error(), '/refused') > 0, 'its message names the dataset')
    call h5logfs_flush(file, status)
    call expect(status == H5LOGFS_ERR_REFUSED, 'the flush tells of it')
    call h5logfs_close(file)
    call h5logfs_flush(file, status)
    call expect(status == H5LOGFS_ERR_CLOSED, 'the file is closed')
  end subroutine

  subroutine scales(pressure)
    integer(h5logfs_id), intent(in) :: pressure
    integer(h5logfs_id) :: x
    real(c_float), target :: places(cells)
    integer :: i
    call h5logfs_dataset(file, '/x', H5LOGFS_FLOAT, [n(cells * ranks)], x)
    call h5logfs_make_scale(x, 'x')
    call h5logfs_attach_scale(pressure, 1, x)
    call h5logfs_set_label(pressure, 2, 'time')
    places = [(0.5 * (cells * rank + i), i = 1, cells)]
    call h5logfs_write_block(x, [n(cells * rank)], [n(cells)], h5logfs_data(places))
  end subroutine

  ! Hyperslabs, points, blocks, and all of a dataset. Odd ranks lend what even ones have copied.
  subroutine selections
    integer(h5logfs_id) :: slabs, points, blocks, whole
    integer(c_int8_t), target :: bytes(3)
    integer(c_int16_t), target :: shorts(2)
    integer(c_int64_t), target :: longs(2, 2, 2), all
    integer(h5logfs_size) :: starts(3, 2), counts(3, 2)
    call h5logfs_dataset(file, '/slabs', H5LOGFS_INT8, [n(6), n(ranks)], slabs)
    bytes = int([1, 2, 3] + 10 * rank, c_int8_t)
    if (lends()) then
      call h5logfs_lend_hyperslab(slabs, [n(1), n(rank)], [n(3), n(1)], h5logfs_data(bytes), stride=[n(2), n(1)])
    else
      call h5logfs_write_hyperslab(slabs, [n(1), n(rank)], [n(3), n(1)], h5logfs_data(bytes), [n(2), n(1)], [n(1), n(1)])
    end if

    call h5logfs_dataset(file, '/points', H5LOGFS_INT16, [n(4), n(ranks)], points)
    shorts = int([7, 8] + 10 * rank, c_int16_t)
    if (lends()) then
      call h5logfs_lend_points(points, reshape([n(3), n(rank), n(0), n(rank)], [2, 2]), h5logfs_data(shorts))
    else
      call h5logfs_write_points(points, reshape([n(3), n(rank), n(0), n(rank)], [2, 2]), h5logfs_data(shorts))
    end if

    ! Two columns of the same rows, at both ends.
    call h5logfs_dataset(file, '/blocks', H5LOGFS_INT64, [n(4), n(2 * ranks), n(2)], blocks)
    longs = reshape([1, 2, 3, 4, 5, 6, 7, 8] + 10 * rank, [2, 2, 2])
    starts = reshape([n(0), n(2 * rank), n(0), n(2), n(2 * rank), n(1)], [3, 2])
    counts = reshape([n(2), n(2), n(1), n(2), n(2), n(1)], [3, 2])
    if (lends()) then
      call h5logfs_lend_blocks(blocks, starts, counts, h5logfs_data(longs))
    else
      call h5logfs_write_blocks(blocks, starts, counts, h5logfs_data(longs))
    end if

    call h5logfs_dataset(file, '/whole', H5LOGFS_INT64, [integer(h5logfs_size) ::], whole)
    all = 99
    if (rank == 0) call h5logfs_lend(whole, h5logfs_data(all))
    call h5logfs_flush(file)
  end subroutine

  ! Each rank appends its own number of rows of two numbers.
  subroutine events(first, rows)
    integer(h5logfs_size), intent(out) :: first, rows
    integer(h5logfs_id) :: events_of_all
    integer(c_int), target :: pairs(2, rank + 1)
    pairs(1, :) = rank
    pairs(2, :) = -1
    call h5logfs_dataset(file, '/events', H5LOGFS_INT32, [n(2), n(0)], events_of_all, max_dims=[n(2), H5LOGFS_UNLIMITED])
    if (lends()) then
      call h5logfs_lend_append(events_of_all, h5logfs_data(pairs))
    else
      call h5logfs_append(events_of_all, h5logfs_data(pairs))
    end if
    call h5logfs_flush(file)
    call h5logfs_appended(events_of_all, first, rows)
    call expect(rows == rank + 1 .and. first == rank * (rank + 1) / 2, 'rows follow those of the ranks before')
  end subroutine

  ! The inner cells of an array with a border, and those of a part that is not contiguous.
  subroutine ghosts
    integer(h5logfs_id) :: inner
    type(h5logfs_memory_space) :: space
    real(c_double), target :: grid(cells + 2, 4)
    integer(h5logfs_size) :: start(2), count(2)
    integer :: i, j
    grid = -1
    call h5logfs_dataset(file, '/inner', H5LOGFS_DOUBLE, [n(cells), n(2 * ranks)], inner, fill=h5logfs_data(grid))
    do j = 2, 3
      do i = 2, cells + 1
        grid(i, j) = 100 * rank + 10 * (j - 1) + (i - 1)
      end do
    end do
    space%dims = [n(cells + 2), n(4)]
    space%start = [n(1), n(1)]
    space%count = [n(cells), n(2)]
    start = [n(0), n(2 * rank)]
    count = [n(cells), n(2)]
    select case (mod(rank, 4))
    case (0)
      call h5logfs_write_block_from(inner, start, count, space, h5logfs_data(grid))
    case (1)
      call h5logfs_lend_block_from(inner, start, count, space, h5logfs_data(grid))
    case (2)
      call h5logfs_write_hyperslab_from(inner, start, count, space, h5logfs_data(grid))
    case (3)
      ! One block of all cells, in the file and in memory.
      space%count = [n(1), n(1)]
      space%block = count
      space%stride = count
      call h5logfs_lend_hyperslab_from(inner, start, [n(1), n(1)], space, h5logfs_data(grid), block=count)
    end select
    call h5logfs_flush(file)
  end subroutine

  subroutine structs
    type, bind(c) :: particle
      integer(c_int) :: number
      real(c_double) :: place(3)
    end type
    integer(h5logfs_id) :: vector, compound, colours, big, text, tagged, bits, particles, colour
    integer(c_size_t) :: bytes
    type(particle), target :: own
    integer(c_int8_t), target :: green
    call h5logfs_type_array(H5LOGFS_DOUBLE, [n(3)], vector)
    call h5logfs_type_compound(c_sizeof(own), compound)
    call h5logfs_type_insert(compound, 'number', 0_c_size_t, H5LOGFS_INT32)
    call h5logfs_type_insert(compound, 'place', 8_c_size_t, vector)
    call h5logfs_dataset(file, '/particles', compound, [n(ranks)], particles)
    own = particle(rank, [0.5d0, 1.5d0, 2.5d0] + rank)
    call h5logfs_write_block(particles, [n(rank)], [n(1)], h5logfs_data(c_loc(own), c_sizeof(own)))

    call h5logfs_type_enum(H5LOGFS_INT8, colours)
    call h5logfs_type_enum_insert(colours, 'RED', 1_c_int64_t)
    call h5logfs_type_enum_insert(colours, 'GREEN', 2_c_int64_t)
    call h5logfs_dataset(file, '/colour', colours, [integer(h5logfs_size) ::], colour)
    green = 2
    if (rank == 0) call h5logfs_write(colour, h5logfs_data(green))

    call h5logfs_type_with_order(H5LOGFS_INT32, H5LOGFS_BIG_ENDIAN, big)
    call h5logfs_type_text(8_c_size_t, H5LOGFS_UTF8, text)
    call h5logfs_type_opaque(5_c_size_t, 'five bytes', tagged)
    call h5logfs_type_bitfield(2_c_size_t, bits)
    call h5logfs_type_size(big, bytes)
    call expect(bytes == 4, 'the size of an integer')
    call h5logfs_type_size(text, bytes)
    call expect(bytes == 8, 'the size of a text')
    call h5logfs_type_size(tagged, bytes)
    call expect(bytes == 5, 'the size of opaque bytes')
    call h5logfs_type_size(bits, bytes)
    call expect(bytes == 2, 'the size of bits')
    call h5logfs_type_close(compound)
    call h5logfs_flush(file)
  end subroutine

  subroutine open_again
    integer(h5logfs_id) :: pressure
    real(c_double), target :: values(cells)
    integer :: status
    call h5logfs_create(mpi_comm_world, path, file, ierror=status)
    call expect(status /= H5LOGFS_OK, 'a file that exists is not replaced')
    call h5logfs_open(mpi_comm_world, path, file)
    call h5logfs_open_dataset(file, '/air/pressure', H5LOGFS_DOUBLE, pressure)
    call h5logfs_set_extent(pressure, [n(cells * ranks), n(steps)])
    values = 100 * steps + rank
    call h5logfs_write_block(pressure, [n(cells * rank), n(steps - 1)], [n(cells), n(1)], h5logfs_data(values))
    call h5logfs_close(file)

    call h5logfs_create(mpi_comm_world, trim(path) // '.left', file)
    call h5logfs_flush(file)
    call h5logfs_abandon(file)
  end subroutine

end program
