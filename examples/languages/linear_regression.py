"""A line fitted by gradient descent, with data shared out over ranks: kolo from Python, by ctypes.

    kolo-run -np 2 python3 linear_regression.py
"""
import ctypes
import signal
import sys

try:
    kolo = ctypes.CDLL("libkolo.so")
except OSError as error:
    sys.exit(f"libkolo.so was not found; name its folder in LD_LIBRARY_PATH: {error}")
kolo.kolo_last_error.restype = ctypes.c_char_p
FLOAT64, SUM = 1, 0
POINTS, STEPS = 64, 60


class Options(ctypes.Structure):
    """kolo_options; all zero is the default of every field."""
    _fields_ = [("name", ctypes.c_char_p), ("process_set", ctypes.c_uint32),
                ("prescale", ctypes.c_double), ("postscale", ctypes.c_double),
                ("absent", ctypes.c_int), ("on_device", ctypes.c_int), ("stream", ctypes.c_void_p),
                ("allocate", ctypes.c_void_p), ("context", ctypes.c_void_p)]


def check(status):
    if status != 0:
        sys.exit(kolo.kolo_last_error().decode())


def main():
    # Python's own handler of Ctrl-C would run only when a call of kolo that waits has returned.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    check(kolo.kolo_init(None))
    rank, size = kolo.kolo_rank(), kolo.kolo_size()
    weights = (ctypes.c_double * 2)()  # slope and offset of y = 3 x + 1
    check(kolo.kolo_broadcast_ordered(weights, ctypes.c_int64(2), FLOAT64, 0, 0))
    shape = (ctypes.c_int64 * 1)(2)
    options = Options(name=b"gradient")
    for _ in range(STEPS):
        gradient = (ctypes.c_double * 2)()
        for i in range(rank, POINTS, size):  # this rank's share
            x = i / POINTS
            error = weights[0] * x + weights[1] - (3 * x + 1)
            gradient[0] += error * x / POINTS
            gradient[1] += error / POINTS
        check(kolo.kolo_allreduce(gradient, gradient, shape, 1, FLOAT64, SUM,
                                  ctypes.byref(options), None))
        for i in range(2):
            weights[i] -= gradient[i]
    if rank == 0:
        print(f"slope {weights[0]:.4f}, offset {weights[1]:.4f} on {size} ranks")
    check(kolo.kolo_shutdown())


main()
