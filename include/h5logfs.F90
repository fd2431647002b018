! The writer of h5logfs for Fortran 2018: the functions of h5logfs_writer.h, as subroutines. What they do is written there.
!
! Compile this file with the program, by the compiler of its MPI: a compiled module fits one compiler only. pkg-config
! (--variable=fortran_module h5logfs_writer) and CMake (h5logfs::fortran) know where it is. The flag -DH5LOGFS_WITHOUT_MPI_F08
! leaves out what needs the module mpi_f08, for an MPI that has none.
!
! Communicators are those of mpi_f08 (type(MPI_Comm)), or the integers of the module mpi and of mpif.h.
!
! Errors. The last argument of each subroutine, ierror, is one of H5LOGFS_OK and H5LOGFS_ERR_...; h5logfs_last_error() is the
! message. Without this argument an error prints the message and stops the program.
!
! Arrays. Their first dimension is the one that varies fastest, as everywhere in Fortran. Extents, starts and counts are in that
! order, too; a reader in C or Python sees them the other way round. Starts count from 0, as in HDF5's own Fortran interface.
!
! Data. Values go to the library as h5logfs_data(values): an array of any rank, or a scalar, that is a target or a pointer and
! lies in one piece. Data that are lent must stay as they are until the next flush.
module h5logfs
  use, intrinsic :: iso_c_binding
#ifndef H5LOGFS_WITHOUT_MPI_F08
  use mpi_f08, only: MPI_Comm
#endif
  implicit none
  private

  ! Handles of files, datasets and datatypes.
  integer, parameter, public :: h5logfs_id = c_int64_t
  ! Extents, starts and counts.
  integer, parameter, public :: h5logfs_size = c_int64_t

  character(len=*), parameter, public :: H5LOGFS_NETCDF_DIMENSION = 'This is a netCDF dimension but not a netCDF variable.'

  integer, parameter, public :: H5LOGFS_OK = 0
  integer, parameter, public :: H5LOGFS_ERR_INVALID_ARGUMENT = 1
  integer, parameter, public :: H5LOGFS_ERR_DEFINITION = 2
  integer, parameter, public :: H5LOGFS_ERR_WRITE = 3
  integer, parameter, public :: H5LOGFS_ERR_BUFFER_FULL = 4
  integer, parameter, public :: H5LOGFS_ERR_FAILED = 5
  integer, parameter, public :: H5LOGFS_ERR_REFUSED = 6
  integer, parameter, public :: H5LOGFS_ERR_CLOSED = 7
  integer, parameter, public :: H5LOGFS_ERR_MPI = 8
  integer, parameter, public :: H5LOGFS_ERR_PANIC = 9
  integer, parameter, public :: H5LOGFS_ERR_NOT_SETTLED = 10
  integer, parameter, public :: H5LOGFS_ERR_FORKED = 11

  integer(c_int64_t), parameter, public :: H5LOGFS_SUBFILES_PER_NODE = -1
  integer(c_int), parameter, public :: H5LOGFS_FSYNC_NONE = 0
  integer(c_int), parameter, public :: H5LOGFS_FSYNC_CLOSE = 1
  integer(c_int), parameter, public :: H5LOGFS_FSYNC_FLUSH = 2
  integer(c_int), parameter, public :: H5LOGFS_LITTLE_ENDIAN = 0
  integer(c_int), parameter, public :: H5LOGFS_BIG_ENDIAN = 1
  integer(c_int), parameter, public :: H5LOGFS_ASCII = 0
  integer(c_int), parameter, public :: H5LOGFS_UTF8 = 1
  ! A value of max_dims. UINT64_MAX of C has these bits.
  integer(h5logfs_size), parameter, public :: H5LOGFS_UNLIMITED = -1

  integer(h5logfs_id), parameter, public :: H5LOGFS_INT8 = 1
  integer(h5logfs_id), parameter, public :: H5LOGFS_INT16 = 2
  integer(h5logfs_id), parameter, public :: H5LOGFS_INT32 = 3
  integer(h5logfs_id), parameter, public :: H5LOGFS_INT64 = 4
  integer(h5logfs_id), parameter, public :: H5LOGFS_UINT8 = 5
  integer(h5logfs_id), parameter, public :: H5LOGFS_UINT16 = 6
  integer(h5logfs_id), parameter, public :: H5LOGFS_UINT32 = 7
  integer(h5logfs_id), parameter, public :: H5LOGFS_UINT64 = 8
  integer(h5logfs_id), parameter, public :: H5LOGFS_FLOAT = 9
  integer(h5logfs_id), parameter, public :: H5LOGFS_DOUBLE = 10
  integer(h5logfs_id), parameter, public :: H5LOGFS_BOOL = 11

  ! Options of a file; h5logfs_options_init fills in the defaults. The fields are those of the struct of C.
  type, bind(c), public :: h5logfs_options
    integer(c_size_t) :: size = 0
    integer(c_int) :: overwrite = 0
    integer(c_int) :: fsync = 0
    integer(c_int64_t) :: buffer_limit = 0
    integer(c_int64_t) :: subfiles = 0
    integer(c_int) :: share_selections = 0
    integer(c_int) :: encode_selections = 0
    integer(c_int) :: collective = 0
    integer(c_size_t) :: hints = 0
    type(c_ptr) :: hint_keys = c_null_ptr
    type(c_ptr) :: hint_values = c_null_ptr
    integer(c_int) :: discard_unclosed = 0
    integer(c_int) :: settle = 0
    integer(c_int64_t) :: checksums = 0
    integer(c_int64_t) :: settle_memory = 0
    real(c_double) :: flush_every = 0
    integer(c_int64_t) :: flush_bytes = 0
    integer(c_int64_t) :: keep_unclosed = 0
    integer(c_int64_t) :: deflate_selections = 0
    integer(c_int64_t) :: threads = 0
  end type

  ! Where values lie in memory, and how many bytes they have. h5logfs_data makes it.
  type, public :: h5logfs_values
    private
    type(c_ptr) :: address = c_null_ptr
    integer(c_size_t) :: bytes = 0
  end type

  ! A selected part of an array in memory: dims is the shape of the array, the others select in it as in HDF5. stride and block
  ! may be left unallocated, which means 1 in each dimension.
  type, public :: h5logfs_memory_space
    integer(h5logfs_size), allocatable :: dims(:), start(:), stride(:), count(:), block(:)
  end type

  type, bind(c) :: dataset_spec
    integer(c_size_t) :: size
    integer(c_int64_t) :: datatype
    integer(c_int) :: rank
    integer(c_int) :: deflate
    integer(c_int) :: shuffle
    integer(c_int) :: fletcher32
    type(c_ptr) :: dims
    type(c_ptr) :: max_dims
    type(c_ptr) :: chunk
    type(c_ptr) :: fill
  end type

  type, bind(c) :: memory_space
    integer(c_size_t) :: size
    integer(c_int) :: rank
    type(c_ptr) :: dims
    type(c_ptr) :: start
    type(c_ptr) :: stride
    type(c_ptr) :: count
    type(c_ptr) :: block
  end type

  public :: h5logfs_last_error, h5logfs_options_init, h5logfs_create, h5logfs_open, h5logfs_exists, h5logfs_group
  public :: h5logfs_attribute, h5logfs_attribute_text, h5logfs_attribute_texts, h5logfs_flush, h5logfs_close, h5logfs_abandon
  public :: h5logfs_buffered, h5logfs_type_compound, h5logfs_type_insert, h5logfs_type_enum, h5logfs_type_enum_insert
  public :: h5logfs_type_array, h5logfs_type_text, h5logfs_type_opaque, h5logfs_type_bitfield, h5logfs_type_with_order
  public :: h5logfs_type_size, h5logfs_type_close, h5logfs_dataset, h5logfs_open_dataset, h5logfs_set_extent
  public :: h5logfs_make_scale, h5logfs_attach_scale, h5logfs_set_label, h5logfs_get_extent, h5logfs_data
  public :: h5logfs_write, h5logfs_write_block, h5logfs_write_hyperslab, h5logfs_write_blocks, h5logfs_write_points
  public :: h5logfs_lend, h5logfs_lend_block, h5logfs_lend_hyperslab, h5logfs_lend_blocks, h5logfs_lend_points
  public :: h5logfs_write_block_from, h5logfs_write_hyperslab_from, h5logfs_lend_block_from, h5logfs_lend_hyperslab_from
  public :: h5logfs_append, h5logfs_lend_append, h5logfs_appended

  ! h5logfs_create(comm, path, file [, options, ierror])
  interface h5logfs_create
    module procedure create_of_integer
#ifndef H5LOGFS_WITHOUT_MPI_F08
    module procedure create_of_f08
#endif
  end interface

  ! h5logfs_open(comm, path, file [, options, ierror])
  interface h5logfs_open
    module procedure open_of_integer
#ifndef H5LOGFS_WITHOUT_MPI_F08
    module procedure open_of_f08
#endif
  end interface

  ! The values of an array or a scalar. A compound is data_of_address: h5logfs_data(c_loc(values), bytes).
  interface h5logfs_data
    module procedure data_of_int8, data_of_int16, data_of_int32, data_of_int64, data_of_float, data_of_double
    module procedure data_of_address
  end interface

  ! The functions of C.
  interface
    function c_last_error() bind(c, name='h5logfs_last_error')
      import c_ptr
      type(c_ptr) :: c_last_error
    end function

    integer(c_int) function c_options_init(options, size) bind(c, name='h5logfs_options_init')
      import c_int, c_size_t, h5logfs_options
      type(h5logfs_options), intent(out) :: options
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_create(comm, path, options, file) bind(c, name='h5logfs_create_f')
      import c_int, c_int64_t, c_char, c_ptr
      integer(c_int), value :: comm
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: options
      integer(c_int64_t), intent(out) :: file
    end function

    integer(c_int) function c_open(comm, path, options, file) bind(c, name='h5logfs_open_f')
      import c_int, c_int64_t, c_char, c_ptr
      integer(c_int), value :: comm
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: options
      integer(c_int64_t), intent(out) :: file
    end function

    integer(c_int) function c_exists(file, path, exists) bind(c, name='h5logfs_exists')
      import c_int, c_int64_t, c_char
      integer(c_int64_t), value :: file
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), intent(out) :: exists
    end function

    integer(c_int) function c_group(file, path) bind(c, name='h5logfs_group')
      import c_int, c_int64_t, c_char
      integer(c_int64_t), value :: file
      character(kind=c_char), intent(in) :: path(*)
    end function

    integer(c_int) function c_attribute(file, object, name, datatype, rank, dims, value, size) &
        bind(c, name='h5logfs_attribute')
      import c_int, c_int64_t, c_char, c_ptr, c_size_t
      integer(c_int64_t), value :: file
      character(kind=c_char), intent(in) :: object(*), name(*)
      integer(c_int64_t), value :: datatype
      integer(c_int), value :: rank
      integer(c_int64_t), intent(in) :: dims(*)
      type(c_ptr), value :: value
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_attribute_text(file, object, name, text) bind(c, name='h5logfs_attribute_text')
      import c_int, c_int64_t, c_char
      integer(c_int64_t), value :: file
      character(kind=c_char), intent(in) :: object(*), name(*), text(*)
    end function

    integer(c_int) function c_attribute_texts(file, object, name, number, texts) bind(c, name='h5logfs_attribute_texts')
      import c_int, c_int64_t, c_char, c_ptr, c_size_t
      integer(c_int64_t), value :: file
      character(kind=c_char), intent(in) :: object(*), name(*)
      integer(c_size_t), value :: number
      type(c_ptr), intent(in) :: texts(*)
    end function

    integer(c_int) function c_flush(file) bind(c, name='h5logfs_flush')
      import c_int, c_int64_t
      integer(c_int64_t), value :: file
    end function

    integer(c_int) function c_close(file) bind(c, name='h5logfs_close')
      import c_int, c_int64_t
      integer(c_int64_t), value :: file
    end function

    integer(c_int) function c_abandon(file) bind(c, name='h5logfs_abandon')
      import c_int, c_int64_t
      integer(c_int64_t), value :: file
    end function

    integer(c_int) function c_buffered(file, bytes) bind(c, name='h5logfs_buffered')
      import c_int, c_int64_t
      integer(c_int64_t), value :: file
      integer(c_int64_t), intent(out) :: bytes
    end function

    integer(c_int) function c_type_compound(size, datatype) bind(c, name='h5logfs_type_compound')
      import c_int, c_int64_t, c_size_t
      integer(c_size_t), value :: size
      integer(c_int64_t), intent(out) :: datatype
    end function

    integer(c_int) function c_type_insert(compound, name, offset, member) bind(c, name='h5logfs_type_insert')
      import c_int, c_int64_t, c_size_t, c_char
      integer(c_int64_t), value :: compound
      character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), value :: offset
      integer(c_int64_t), value :: member
    end function

    integer(c_int) function c_type_enum(base, datatype) bind(c, name='h5logfs_type_enum')
      import c_int, c_int64_t
      integer(c_int64_t), value :: base
      integer(c_int64_t), intent(out) :: datatype
    end function

    integer(c_int) function c_type_enum_insert(enumeration, name, number) bind(c, name='h5logfs_type_enum_insert')
      import c_int, c_int64_t, c_char
      integer(c_int64_t), value :: enumeration
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: number
    end function

    integer(c_int) function c_type_array(base, rank, dims, datatype) bind(c, name='h5logfs_type_array')
      import c_int, c_int64_t
      integer(c_int64_t), value :: base
      integer(c_int), value :: rank
      integer(c_int64_t), intent(in) :: dims(*)
      integer(c_int64_t), intent(out) :: datatype
    end function

    integer(c_int) function c_type_text(size, charset, datatype) bind(c, name='h5logfs_type_text')
      import c_int, c_int64_t, c_size_t
      integer(c_size_t), value :: size
      integer(c_int), value :: charset
      integer(c_int64_t), intent(out) :: datatype
    end function

    integer(c_int) function c_type_opaque(size, tag, datatype) bind(c, name='h5logfs_type_opaque')
      import c_int, c_int64_t, c_size_t, c_char
      integer(c_size_t), value :: size
      character(kind=c_char), intent(in) :: tag(*)
      integer(c_int64_t), intent(out) :: datatype
    end function

    integer(c_int) function c_type_bitfield(size, datatype) bind(c, name='h5logfs_type_bitfield')
      import c_int, c_int64_t, c_size_t
      integer(c_size_t), value :: size
      integer(c_int64_t), intent(out) :: datatype
    end function

    integer(c_int) function c_type_with_order(base, order, datatype) bind(c, name='h5logfs_type_with_order')
      import c_int, c_int64_t
      integer(c_int64_t), value :: base
      integer(c_int), value :: order
      integer(c_int64_t), intent(out) :: datatype
    end function

    integer(c_int) function c_type_size(datatype, size) bind(c, name='h5logfs_type_size')
      import c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: datatype
      integer(c_size_t), intent(out) :: size
    end function

    integer(c_int) function c_type_close(datatype) bind(c, name='h5logfs_type_close')
      import c_int, c_int64_t
      integer(c_int64_t), value :: datatype
    end function

    integer(c_int) function c_dataset_spec_init(spec, size) bind(c, name='h5logfs_dataset_spec_init')
      import c_int, c_size_t, dataset_spec
      type(dataset_spec), intent(out) :: spec
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_dataset(file, path, spec, dataset) bind(c, name='h5logfs_dataset')
      import c_int, c_int64_t, c_char, dataset_spec
      integer(c_int64_t), value :: file
      character(kind=c_char), intent(in) :: path(*)
      type(dataset_spec), intent(in) :: spec
      integer(c_int64_t), intent(out) :: dataset
    end function

    integer(c_int) function c_open_dataset(file, path, datatype, dataset) bind(c, name='h5logfs_open_dataset')
      import c_int, c_int64_t, c_char
      integer(c_int64_t), value :: file
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int64_t), value :: datatype
      integer(c_int64_t), intent(out) :: dataset
    end function

    integer(c_int) function c_set_extent(dataset, dims) bind(c, name='h5logfs_set_extent')
      import c_int, c_int64_t
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: dims(*)
    end function

    integer(c_int) function c_make_scale(dataset, name) bind(c, name='h5logfs_make_scale')
      import c_int, c_int64_t, c_char
      integer(c_int64_t), value :: dataset
      character(kind=c_char), intent(in) :: name(*)
    end function

    integer(c_int) function c_attach_scale(dataset, dimension, scale) bind(c, name='h5logfs_attach_scale')
      import c_int, c_int64_t
      integer(c_int64_t), value :: dataset
      integer(c_int), value :: dimension
      integer(c_int64_t), value :: scale
    end function

    integer(c_int) function c_set_label(dataset, dimension, label) bind(c, name='h5logfs_set_label')
      import c_int, c_int64_t, c_char
      integer(c_int64_t), value :: dataset
      integer(c_int), value :: dimension
      character(kind=c_char), intent(in) :: label(*)
    end function

    integer(c_int) function c_get_extent(dataset, capacity, dims, rank) bind(c, name='h5logfs_get_extent')
      import c_int, c_int64_t
      integer(c_int64_t), value :: dataset
      integer(c_int), value :: capacity
      integer(c_int64_t), intent(out) :: dims(*)
      integer(c_int), intent(out) :: rank
    end function

    integer(c_int) function c_write(dataset, data, size) bind(c, name='h5logfs_write')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend(dataset, data, size) bind(c, name='h5logfs_lend')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_write_block(dataset, start, count, data, size) bind(c, name='h5logfs_write_block')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), count(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend_block(dataset, start, count, data, size) bind(c, name='h5logfs_lend_block')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), count(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_write_hyperslab(dataset, start, stride, count, block, data, size) &
        bind(c, name='h5logfs_write_hyperslab')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), stride(*), count(*), block(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend_hyperslab(dataset, start, stride, count, block, data, size) &
        bind(c, name='h5logfs_lend_hyperslab')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), stride(*), count(*), block(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_write_blocks(dataset, number, starts, counts, data, size) bind(c, name='h5logfs_write_blocks')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_size_t), value :: number
      integer(c_int64_t), intent(in) :: starts(*), counts(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend_blocks(dataset, number, starts, counts, data, size) bind(c, name='h5logfs_lend_blocks')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_size_t), value :: number
      integer(c_int64_t), intent(in) :: starts(*), counts(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_write_points(dataset, number, points, data, size) bind(c, name='h5logfs_write_points')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_size_t), value :: number
      integer(c_int64_t), intent(in) :: points(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend_points(dataset, number, points, data, size) bind(c, name='h5logfs_lend_points')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      integer(c_size_t), value :: number
      integer(c_int64_t), intent(in) :: points(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_memory_space_init(space, size) bind(c, name='h5logfs_memory_space_init')
      import c_int, c_size_t, memory_space
      type(memory_space), intent(out) :: space
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_write_block_from(dataset, start, count, space, data, size) &
        bind(c, name='h5logfs_write_block_from')
      import c_int, c_int64_t, c_ptr, c_size_t, memory_space
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), count(*)
      type(memory_space), intent(in) :: space
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend_block_from(dataset, start, count, space, data, size) &
        bind(c, name='h5logfs_lend_block_from')
      import c_int, c_int64_t, c_ptr, c_size_t, memory_space
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), count(*)
      type(memory_space), intent(in) :: space
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_write_hyperslab_from(dataset, start, stride, count, block, space, data, size) &
        bind(c, name='h5logfs_write_hyperslab_from')
      import c_int, c_int64_t, c_ptr, c_size_t, memory_space
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), stride(*), count(*), block(*)
      type(memory_space), intent(in) :: space
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend_hyperslab_from(dataset, start, stride, count, block, space, data, size) &
        bind(c, name='h5logfs_lend_hyperslab_from')
      import c_int, c_int64_t, c_ptr, c_size_t, memory_space
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(in) :: start(*), stride(*), count(*), block(*)
      type(memory_space), intent(in) :: space
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_append(dataset, data, size) bind(c, name='h5logfs_append')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_lend_append(dataset, data, size) bind(c, name='h5logfs_lend_append')
      import c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: dataset
      type(c_ptr), value :: data
      integer(c_size_t), value :: size
    end function

    integer(c_int) function c_appended(dataset, start, count) bind(c, name='h5logfs_appended')
      import c_int, c_int64_t
      integer(c_int64_t), value :: dataset
      integer(c_int64_t), intent(out) :: start, count
    end function

    ! The length of a string of C.
    integer(c_size_t) function strlen(text) bind(c, name='strlen')
      import c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! The message of this thread's last error.
  function h5logfs_last_error() result(message)
    character(len=:), allocatable :: message
    character(kind=c_char), pointer :: characters(:)
    type(c_ptr) :: text
    integer :: i
    text = c_last_error()
    call c_f_pointer(text, characters, [strlen(text)])
    allocate (character(len=size(characters)) :: message)
    do i = 1, size(characters)
      message(i:i) = characters(i)
    end do
  end function

  ! Hands the result of a function to the caller, or stops the program at an error that the caller does not ask for.
  subroutine finish(status, ierror)
    integer(c_int), intent(in) :: status
    integer, intent(out), optional :: ierror
    if (present(ierror)) then
      ierror = int(status)
    else if (status /= H5LOGFS_OK) then
      error stop 'h5logfs: ' // h5logfs_last_error()
    end if
  end subroutine

  ! A string for C: without the blanks at its end.
  pure function c_string(text)
    character(len=*), intent(in) :: text
    character(len=len_trim(text) + 1, kind=c_char) :: c_string
    c_string = trim(text) // c_null_char
  end function

  ! Extents, starts and counts in the order of C.
  pure function in_c(numbers)
    integer(h5logfs_size), intent(in) :: numbers(:)
    integer(c_int64_t) :: in_c(size(numbers))
    in_c = numbers(size(numbers):1:-1)
  end function

  ! The same for numbers that may be left out: 1 for each of so many dimensions then.
  pure function or_ones(rank, numbers)
    integer, intent(in) :: rank
    integer(h5logfs_size), intent(in), optional :: numbers(:)
    integer(c_int64_t) :: or_ones(rank)
    or_ones = 1
    if (present(numbers)) or_ones = in_c(numbers)
  end function

  subroutine h5logfs_options_init(options, ierror)
    type(h5logfs_options), intent(out) :: options
    integer, intent(out), optional :: ierror
    call finish(c_options_init(options, c_sizeof(options)), ierror)
  end subroutine

  subroutine create_of_integer(comm, path, file, options, ierror)
    integer, intent(in) :: comm
    character(len=*), intent(in) :: path
    integer(h5logfs_id), intent(out) :: file
    type(h5logfs_options), intent(in), target, optional :: options
    integer, intent(out), optional :: ierror
    type(c_ptr) :: given
    given = c_null_ptr
    if (present(options)) given = c_loc(options)
    call finish(c_create(int(comm, c_int), c_string(path), given, file), ierror)
  end subroutine

  subroutine open_of_integer(comm, path, file, options, ierror)
    integer, intent(in) :: comm
    character(len=*), intent(in) :: path
    integer(h5logfs_id), intent(out) :: file
    type(h5logfs_options), intent(in), target, optional :: options
    integer, intent(out), optional :: ierror
    type(c_ptr) :: given
    given = c_null_ptr
    if (present(options)) given = c_loc(options)
    call finish(c_open(int(comm, c_int), c_string(path), given, file), ierror)
  end subroutine

#ifndef H5LOGFS_WITHOUT_MPI_F08
  subroutine create_of_f08(comm, path, file, options, ierror)
    type(MPI_Comm), intent(in) :: comm
    character(len=*), intent(in) :: path
    integer(h5logfs_id), intent(out) :: file
    type(h5logfs_options), intent(in), target, optional :: options
    integer, intent(out), optional :: ierror
    call create_of_integer(comm%MPI_VAL, path, file, options, ierror)
  end subroutine

  subroutine open_of_f08(comm, path, file, options, ierror)
    type(MPI_Comm), intent(in) :: comm
    character(len=*), intent(in) :: path
    integer(h5logfs_id), intent(out) :: file
    type(h5logfs_options), intent(in), target, optional :: options
    integer, intent(out), optional :: ierror
    call open_of_integer(comm%MPI_VAL, path, file, options, ierror)
  end subroutine
#endif

  subroutine h5logfs_exists(file, path, exists, ierror)
    integer(h5logfs_id), intent(in) :: file
    character(len=*), intent(in) :: path
    logical, intent(out) :: exists
    integer, intent(out), optional :: ierror
    integer(c_int) :: status, found
    found = 0
    status = c_exists(file, c_string(path), found)
    exists = found /= 0
    call finish(status, ierror)
  end subroutine

  subroutine h5logfs_group(file, path, ierror)
    integer(h5logfs_id), intent(in) :: file
    character(len=*), intent(in) :: path
    integer, intent(out), optional :: ierror
    call finish(c_group(file, c_string(path)), ierror)
  end subroutine

  ! Without dims the attribute is a single element.
  subroutine h5logfs_attribute(file, object, name, datatype, values, dims, ierror)
    integer(h5logfs_id), intent(in) :: file
    character(len=*), intent(in) :: object, name
    integer(h5logfs_id), intent(in) :: datatype
    type(h5logfs_values), intent(in) :: values
    integer(h5logfs_size), intent(in), optional :: dims(:)
    integer, intent(out), optional :: ierror
    integer(c_int64_t) :: none(1)
    integer(c_int) :: status
    if (present(dims)) then
      status = c_attribute(file, c_string(object), c_string(name), datatype, size(dims), in_c(dims), values%address, &
        values%bytes)
    else
      none = 0
      status = c_attribute(file, c_string(object), c_string(name), datatype, 0_c_int, none, values%address, values%bytes)
    end if
    call finish(status, ierror)
  end subroutine

  subroutine h5logfs_attribute_text(file, object, name, text, ierror)
    integer(h5logfs_id), intent(in) :: file
    character(len=*), intent(in) :: object, name, text
    integer, intent(out), optional :: ierror
    call finish(c_attribute_text(file, c_string(object), c_string(name), c_string(text)), ierror)
  end subroutine

  subroutine h5logfs_attribute_texts(file, object, name, texts, ierror)
    integer(h5logfs_id), intent(in) :: file
    character(len=*), intent(in) :: object, name, texts(:)
    integer, intent(out), optional :: ierror
    character(len=len(texts) + 1, kind=c_char), target :: ended(size(texts))
    type(c_ptr) :: addresses(size(texts))
    integer :: i
    do i = 1, size(texts)
      ended(i) = trim(texts(i)) // c_null_char
      addresses(i) = c_loc(ended(i))
    end do
    call finish(c_attribute_texts(file, c_string(object), c_string(name), size(texts, kind=c_size_t), addresses), ierror)
  end subroutine

  subroutine h5logfs_flush(file, ierror)
    integer(h5logfs_id), intent(in) :: file
    integer, intent(out), optional :: ierror
    call finish(c_flush(file), ierror)
  end subroutine

  subroutine h5logfs_close(file, ierror)
    integer(h5logfs_id), intent(in) :: file
    integer, intent(out), optional :: ierror
    call finish(c_close(file), ierror)
  end subroutine

  subroutine h5logfs_abandon(file, ierror)
    integer(h5logfs_id), intent(in) :: file
    integer, intent(out), optional :: ierror
    call finish(c_abandon(file), ierror)
  end subroutine

  subroutine h5logfs_buffered(file, bytes, ierror)
    integer(h5logfs_id), intent(in) :: file
    integer(c_int64_t), intent(out) :: bytes
    integer, intent(out), optional :: ierror
    call finish(c_buffered(file, bytes), ierror)
  end subroutine

  subroutine h5logfs_type_compound(bytes, datatype, ierror)
    integer(c_size_t), intent(in) :: bytes
    integer(h5logfs_id), intent(out) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_compound(bytes, datatype), ierror)
  end subroutine

  subroutine h5logfs_type_insert(compound, name, offset, member, ierror)
    integer(h5logfs_id), intent(in) :: compound
    character(len=*), intent(in) :: name
    integer(c_size_t), intent(in) :: offset
    integer(h5logfs_id), intent(in) :: member
    integer, intent(out), optional :: ierror
    call finish(c_type_insert(compound, c_string(name), offset, member), ierror)
  end subroutine

  subroutine h5logfs_type_enum(base, datatype, ierror)
    integer(h5logfs_id), intent(in) :: base
    integer(h5logfs_id), intent(out) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_enum(base, datatype), ierror)
  end subroutine

  subroutine h5logfs_type_enum_insert(enumeration, name, number, ierror)
    integer(h5logfs_id), intent(in) :: enumeration
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: number
    integer, intent(out), optional :: ierror
    call finish(c_type_enum_insert(enumeration, c_string(name), number), ierror)
  end subroutine

  subroutine h5logfs_type_array(base, dims, datatype, ierror)
    integer(h5logfs_id), intent(in) :: base
    integer(h5logfs_size), intent(in) :: dims(:)
    integer(h5logfs_id), intent(out) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_array(base, size(dims), in_c(dims), datatype), ierror)
  end subroutine

  subroutine h5logfs_type_text(bytes, charset, datatype, ierror)
    integer(c_size_t), intent(in) :: bytes
    integer(c_int), intent(in) :: charset
    integer(h5logfs_id), intent(out) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_text(bytes, charset, datatype), ierror)
  end subroutine

  subroutine h5logfs_type_opaque(bytes, tag, datatype, ierror)
    integer(c_size_t), intent(in) :: bytes
    character(len=*), intent(in) :: tag
    integer(h5logfs_id), intent(out) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_opaque(bytes, c_string(tag), datatype), ierror)
  end subroutine

  subroutine h5logfs_type_bitfield(bytes, datatype, ierror)
    integer(c_size_t), intent(in) :: bytes
    integer(h5logfs_id), intent(out) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_bitfield(bytes, datatype), ierror)
  end subroutine

  subroutine h5logfs_type_with_order(base, order, datatype, ierror)
    integer(h5logfs_id), intent(in) :: base
    integer(c_int), intent(in) :: order
    integer(h5logfs_id), intent(out) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_with_order(base, order, datatype), ierror)
  end subroutine

  subroutine h5logfs_type_size(datatype, bytes, ierror)
    integer(h5logfs_id), intent(in) :: datatype
    integer(c_size_t), intent(out) :: bytes
    integer, intent(out), optional :: ierror
    call finish(c_type_size(datatype, bytes), ierror)
  end subroutine

  subroutine h5logfs_type_close(datatype, ierror)
    integer(h5logfs_id), intent(in) :: datatype
    integer, intent(out), optional :: ierror
    call finish(c_type_close(datatype), ierror)
  end subroutine

  ! An empty dims makes a scalar. Without max_dims no dimension can grow, without chunk the shape is chosen automatically.
  ! deflate is a level from 0 to 9; fill is the value of elements that are never written.
  subroutine h5logfs_dataset(file, path, datatype, dims, dataset, max_dims, chunk, deflate, shuffle, fletcher32, fill, ierror)
    integer(h5logfs_id), intent(in) :: file
    character(len=*), intent(in) :: path
    integer(h5logfs_id), intent(in) :: datatype
    integer(h5logfs_size), intent(in) :: dims(:)
    integer(h5logfs_id), intent(out) :: dataset
    integer(h5logfs_size), intent(in), optional :: max_dims(:), chunk(:)
    integer, intent(in), optional :: deflate
    logical, intent(in), optional :: shuffle, fletcher32
    type(h5logfs_values), intent(in), optional :: fill
    integer, intent(out), optional :: ierror
    integer(c_int64_t), allocatable, target :: now(:), most(:), sides(:)
    type(dataset_spec) :: spec
    integer(c_int) :: status
    dataset = 0
    status = c_dataset_spec_init(spec, c_sizeof(spec))
    if (status == H5LOGFS_OK) then
      spec%datatype = datatype
      spec%rank = size(dims)
      call give(dims, now, spec%dims)
      if (present(max_dims)) call give(max_dims, most, spec%max_dims)
      if (present(chunk)) call give(chunk, sides, spec%chunk)
      if (present(deflate)) spec%deflate = deflate
      if (present(shuffle)) spec%shuffle = merge(1, 0, shuffle)
      if (present(fletcher32)) spec%fletcher32 = merge(1, 0, fletcher32)
      if (present(fill)) spec%fill = fill%address
      status = c_dataset(file, c_string(path), spec, dataset)
    end if
    call finish(status, ierror)
  end subroutine

  ! Numbers for a struct of C, kept in a variable of the caller.
  subroutine give(numbers, kept, address)
    integer(h5logfs_size), intent(in) :: numbers(:)
    integer(c_int64_t), allocatable, target, intent(out) :: kept(:)
    type(c_ptr), intent(out) :: address
    kept = in_c(numbers)
    address = c_null_ptr
    if (size(kept) > 0) address = c_loc(kept)
  end subroutine

  subroutine h5logfs_open_dataset(file, path, datatype, dataset, ierror)
    integer(h5logfs_id), intent(in) :: file
    character(len=*), intent(in) :: path
    integer(h5logfs_id), intent(in) :: datatype
    integer(h5logfs_id), intent(out) :: dataset
    integer, intent(out), optional :: ierror
    call finish(c_open_dataset(file, c_string(path), datatype, dataset), ierror)
  end subroutine

  subroutine h5logfs_set_extent(dataset, dims, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: dims(:)
    integer, intent(out), optional :: ierror
    call finish(c_set_extent(dataset, in_c(dims)), ierror)
  end subroutine

  subroutine h5logfs_make_scale(dataset, name, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    character(len=*), intent(in), optional :: name
    integer, intent(out), optional :: ierror
    if (present(name)) then
      call finish(c_make_scale(dataset, c_string(name)), ierror)
    else
      call finish(c_make_scale(dataset, c_string('')), ierror)
    end if
  end subroutine

  ! The first dimension of Fortran is 1, here and below.
  subroutine h5logfs_attach_scale(dataset, dimension, scale, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer, intent(in) :: dimension
    integer(h5logfs_id), intent(in) :: scale
    integer, intent(out), optional :: ierror
    integer(c_int) :: rank, status
    status = rank_of(dataset, rank)
    if (status == H5LOGFS_OK) status = c_attach_scale(dataset, rank - dimension, scale)
    call finish(status, ierror)
  end subroutine

  subroutine h5logfs_set_label(dataset, dimension, label, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer, intent(in) :: dimension
    character(len=*), intent(in) :: label
    integer, intent(out), optional :: ierror
    integer(c_int) :: rank, status
    status = rank_of(dataset, rank)
    if (status == H5LOGFS_OK) status = c_set_label(dataset, rank - dimension, c_string(label))
    call finish(status, ierror)
  end subroutine

  integer(c_int) function rank_of(dataset, rank)
    integer(h5logfs_id), intent(in) :: dataset
    integer(c_int), intent(out) :: rank
    integer(c_int64_t) :: none(1)
    rank = 0
    rank_of = c_get_extent(dataset, 0_c_int, none, rank)
  end function

  subroutine h5logfs_get_extent(dataset, dims, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), allocatable, intent(out) :: dims(:)
    integer, intent(out), optional :: ierror
    integer(c_int64_t) :: extent(32)
    integer(c_int) :: rank, status
    rank = 0
    status = c_get_extent(dataset, size(extent), extent, rank)
    dims = in_c(extent(:rank))
    call finish(status, ierror)
  end subroutine

  function data_of_int8(values) result(data)
    integer(c_int8_t), pointer, intent(in) :: values(..)
    type(h5logfs_values) :: data
    data = in_one_piece(c_loc(values), 1_c_size_t * size(values, kind=c_size_t), is_contiguous(values))
  end function

  function data_of_int16(values) result(data)
    integer(c_int16_t), pointer, intent(in) :: values(..)
    type(h5logfs_values) :: data
    data = in_one_piece(c_loc(values), 2_c_size_t * size(values, kind=c_size_t), is_contiguous(values))
  end function

  function data_of_int32(values) result(data)
    integer(c_int32_t), pointer, intent(in) :: values(..)
    type(h5logfs_values) :: data
    data = in_one_piece(c_loc(values), 4_c_size_t * size(values, kind=c_size_t), is_contiguous(values))
  end function

  function data_of_int64(values) result(data)
    integer(c_int64_t), pointer, intent(in) :: values(..)
    type(h5logfs_values) :: data
    data = in_one_piece(c_loc(values), 8_c_size_t * size(values, kind=c_size_t), is_contiguous(values))
  end function

  function data_of_float(values) result(data)
    real(c_float), pointer, intent(in) :: values(..)
    type(h5logfs_values) :: data
    data = in_one_piece(c_loc(values), 4_c_size_t * size(values, kind=c_size_t), is_contiguous(values))
  end function

  function data_of_double(values) result(data)
    real(c_double), pointer, intent(in) :: values(..)
    type(h5logfs_values) :: data
    data = in_one_piece(c_loc(values), 8_c_size_t * size(values, kind=c_size_t), is_contiguous(values))
  end function

  ! bytes: how many there are from this address on.
  function data_of_address(address, bytes) result(data)
    type(c_ptr), intent(in) :: address
    integer(c_size_t), intent(in) :: bytes
    type(h5logfs_values) :: data
    data%address = address
    data%bytes = bytes
  end function

  ! A part of an array whose elements do not follow each other would be written as what lies between them.
  function in_one_piece(address, bytes, is_contiguous) result(data)
    type(c_ptr), intent(in) :: address
    integer(c_size_t), intent(in) :: bytes
    logical, intent(in) :: is_contiguous
    type(h5logfs_values) :: data
    if (.not. is_contiguous) error stop 'h5logfs_data: the array does not lie in one piece: h5logfs_write_block_from selects in it'
    data%address = address
    data%bytes = bytes
  end function

  subroutine h5logfs_write(dataset, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_write(dataset, values%address, values%bytes), ierror)
  end subroutine

  subroutine h5logfs_write_block(dataset, start, count, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_write_block(dataset, in_c(start), in_c(count), values%address, values%bytes), ierror)
  end subroutine

  ! stride and block may be left out: 1 in each dimension.
  subroutine h5logfs_write_hyperslab(dataset, start, count, values, stride, block, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_values), intent(in) :: values
    integer(h5logfs_size), intent(in), optional :: stride(:), block(:)
    integer, intent(out), optional :: ierror
    call finish(c_write_hyperslab(dataset, in_c(start), or_ones(size(start), stride), in_c(count), &
      or_ones(size(start), block), values%address, values%bytes), ierror)
  end subroutine

  ! Column n of starts and counts is for block n.
  subroutine h5logfs_write_blocks(dataset, starts, counts, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: starts(:, :), counts(:, :)
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    integer :: rank
    rank = size(starts, 1)
    call finish(c_write_blocks(dataset, size(starts, 2, kind=c_size_t), starts(rank:1:-1, :), counts(rank:1:-1, :), &
      values%address, values%bytes), ierror)
  end subroutine

  ! Column n of points is for element n.
  subroutine h5logfs_write_points(dataset, points, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: points(:, :)
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_write_points(dataset, size(points, 2, kind=c_size_t), points(size(points, 1):1:-1, :), &
      values%address, values%bytes), ierror)
  end subroutine

  subroutine h5logfs_write_block_from(dataset, start, count, space, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_memory_space), intent(in) :: space
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    type(memory_space) :: selected
    type(h5logfs_memory_space), target :: kept
    integer(c_int) :: status
    status = select_in(space, kept, selected)
    if (status == H5LOGFS_OK) then
      status = c_write_block_from(dataset, in_c(start), in_c(count), selected, values%address, values%bytes)
    end if
    call finish(status, ierror)
  end subroutine

  subroutine h5logfs_write_hyperslab_from(dataset, start, count, space, values, stride, block, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_memory_space), intent(in) :: space
    type(h5logfs_values), intent(in) :: values
    integer(h5logfs_size), intent(in), optional :: stride(:), block(:)
    integer, intent(out), optional :: ierror
    type(memory_space) :: selected
    type(h5logfs_memory_space), target :: kept
    integer(c_int) :: status
    status = select_in(space, kept, selected)
    if (status == H5LOGFS_OK) then
      status = c_write_hyperslab_from(dataset, in_c(start), or_ones(size(start), stride), in_c(count), &
        or_ones(size(start), block), selected, values%address, values%bytes)
    end if
    call finish(status, ierror)
  end subroutine

  subroutine h5logfs_lend(dataset, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_lend(dataset, values%address, values%bytes), ierror)
  end subroutine

  subroutine h5logfs_lend_block(dataset, start, count, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_lend_block(dataset, in_c(start), in_c(count), values%address, values%bytes), ierror)
  end subroutine

  ! stride and block may be left out: 1 in each dimension.
  subroutine h5logfs_lend_hyperslab(dataset, start, count, values, stride, block, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_values), intent(in) :: values
    integer(h5logfs_size), intent(in), optional :: stride(:), block(:)
    integer, intent(out), optional :: ierror
    call finish(c_lend_hyperslab(dataset, in_c(start), or_ones(size(start), stride), in_c(count), &
      or_ones(size(start), block), values%address, values%bytes), ierror)
  end subroutine

  ! Column n of starts and counts is for block n.
  subroutine h5logfs_lend_blocks(dataset, starts, counts, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: starts(:, :), counts(:, :)
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    integer :: rank
    rank = size(starts, 1)
    call finish(c_lend_blocks(dataset, size(starts, 2, kind=c_size_t), starts(rank:1:-1, :), counts(rank:1:-1, :), &
      values%address, values%bytes), ierror)
  end subroutine

  ! Column n of points is for element n.
  subroutine h5logfs_lend_points(dataset, points, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: points(:, :)
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_lend_points(dataset, size(points, 2, kind=c_size_t), points(size(points, 1):1:-1, :), &
      values%address, values%bytes), ierror)
  end subroutine

  subroutine h5logfs_lend_block_from(dataset, start, count, space, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_memory_space), intent(in) :: space
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    type(memory_space) :: selected
    type(h5logfs_memory_space), target :: kept
    integer(c_int) :: status
    status = select_in(space, kept, selected)
    if (status == H5LOGFS_OK) then
      status = c_lend_block_from(dataset, in_c(start), in_c(count), selected, values%address, values%bytes)
    end if
    call finish(status, ierror)
  end subroutine

  subroutine h5logfs_lend_hyperslab_from(dataset, start, count, space, values, stride, block, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(in) :: start(:), count(:)
    type(h5logfs_memory_space), intent(in) :: space
    type(h5logfs_values), intent(in) :: values
    integer(h5logfs_size), intent(in), optional :: stride(:), block(:)
    integer, intent(out), optional :: ierror
    type(memory_space) :: selected
    type(h5logfs_memory_space), target :: kept
    integer(c_int) :: status
    status = select_in(space, kept, selected)
    if (status == H5LOGFS_OK) then
      status = c_lend_hyperslab_from(dataset, in_c(start), or_ones(size(start), stride), in_c(count), &
        or_ones(size(start), block), selected, values%address, values%bytes)
    end if
    call finish(status, ierror)
  end subroutine

  ! The struct of C for a selection. Its arrays are in kept.
  integer(c_int) function select_in(space, kept, selected)
    type(h5logfs_memory_space), intent(in) :: space
    type(h5logfs_memory_space), target, intent(inout) :: kept
    type(memory_space), intent(out) :: selected
    select_in = c_memory_space_init(selected, c_sizeof(selected))
    if (select_in /= H5LOGFS_OK) return
    if (.not. (allocated(space%dims) .and. allocated(space%start) .and. allocated(space%count))) then
      error stop 'h5logfs_memory_space: it needs dims, start and count'
    end if
    selected%rank = size(space%dims)
    call give(space%dims, kept%dims, selected%dims)
    call give(space%start, kept%start, selected%start)
    call give(space%count, kept%count, selected%count)
    if (allocated(space%stride)) call give(space%stride, kept%stride, selected%stride)
    if (allocated(space%block)) call give(space%block, kept%block, selected%block)
  end function

  subroutine h5logfs_append(dataset, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_append(dataset, values%address, values%bytes), ierror)
  end subroutine

  subroutine h5logfs_lend_append(dataset, values, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    type(h5logfs_values), intent(in) :: values
    integer, intent(out), optional :: ierror
    call finish(c_lend_append(dataset, values%address, values%bytes), ierror)
  end subroutine

  ! start counts from 0.
  subroutine h5logfs_appended(dataset, start, count, ierror)
    integer(h5logfs_id), intent(in) :: dataset
    integer(h5logfs_size), intent(out) :: start, count
    integer, intent(out), optional :: ierror
    call finish(c_appended(dataset, start, count), ierror)
  end subroutine

end module
