! A line fitted by gradient descent, with data shared out over ranks: kolo from Fortran.
!   gfortran linear_regression.f90 $(pkg-config --libs kolo) -o linear_regression
!   kolo-run -np 2 ./linear_regression

! What this program needs of <kolo/kolo_c.h>.
module kolo
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int32_t), parameter :: KOLO_SUCCESS = 0, KOLO_FLOAT64 = 1, KOLO_SUM = 0

  type, bind(c) :: kolo_options
    type(c_ptr) :: name = c_null_ptr
    integer(c_int32_t) :: process_set = 0
    real(c_double) :: prescale = 0, postscale = 0
    integer(c_int) :: absent = 0, on_device = 0
    type(c_ptr) :: stream = c_null_ptr
    type(c_funptr) :: allocate = c_null_funptr
    type(c_ptr) :: context = c_null_ptr
  end type

  interface
    integer(c_int32_t) function kolo_init(options) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: options
    end function
    integer(c_int32_t) function kolo_shutdown() bind(c)
      import :: c_int32_t
    end function
    integer(c_int) function kolo_rank() bind(c)
      import :: c_int
    end function
    integer(c_int) function kolo_size() bind(c)
      import :: c_int
    end function
    type(c_ptr) function kolo_last_error() bind(c)
      import :: c_ptr
    end function
    integer(c_int32_t) function kolo_allreduce(input, output, shape, dimensions, type, op, options, &
                                               work) bind(c)
      import :: c_int32_t, c_int64_t, c_int, c_ptr, kolo_options
      type(c_ptr), value :: input, output, work
      integer(c_int64_t), intent(in) :: shape(*)
      integer(c_int), value :: dimensions
      integer(c_int32_t), value :: type, op
      type(kolo_options), intent(in) :: options
    end function
    integer(c_int32_t) function kolo_broadcast_ordered(buffer, count, type, root, set) bind(c)
      import :: c_int32_t, c_int64_t, c_int, c_ptr
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: count
      integer(c_int32_t), value :: type, set
      integer(c_int), value :: root
    end function
  end interface

contains
  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    character(kind=c_char), pointer :: text(:)
    integer :: i
    if (status == KOLO_SUCCESS) return
    call c_f_pointer(kolo_last_error(), text, [4096])
    do i = 1, 4096
      if (text(i) == c_null_char) exit
      write (0, '(a)', advance='no') text(i)
    end do
    write (0, *)
    stop 1
  end subroutine
end module

program linear_regression
  use kolo
  implicit none
  integer, parameter :: points = 64, steps = 60
  ! Slope and offset of y = 3 x + 1.
  real(c_double), target :: weights(2) = 0, gradient(2)
  character(kind=c_char), target :: name(9) = [character(kind=c_char) :: 'g', 'r', 'a', 'd', 'i', &
                                               'e', 'n', 't', c_null_char]
  type(kolo_options) :: options
  real(c_double) :: x, error
  integer :: rank, ranks, step, i

  call check(kolo_init(c_null_ptr))
  rank = kolo_rank()
  ranks = kolo_size()
  call check(kolo_broadcast_ordered(c_loc(weights), 2_c_int64_t, KOLO_FLOAT64, 0, 0))
  options%name = c_loc(name)
  do step = 1, steps
    gradient = 0
    do i = rank, points - 1, ranks  ! this rank's share
      x = real(i, c_double) / points
      error = weights(1) * x + weights(2) - (3 * x + 1)
      gradient = gradient + [error * x, error] / points
    end do
    call check(kolo_allreduce(c_loc(gradient), c_loc(gradient), [2_c_int64_t], 1, KOLO_FLOAT64, &
                              KOLO_SUM, options, c_null_ptr))
    weights = weights - gradient
  end do
  if (rank == 0) write (*, '(a, f6.4, a, f6.4, a, i0, a)') 'slope ', weights(1), ', offset ', &
    weights(2), ' on ', ranks, ' ranks'
  call check(kolo_shutdown())
end program
