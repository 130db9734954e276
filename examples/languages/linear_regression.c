// A line fitted by gradient descent, with data shared out over ranks: kolo from C. The same in
// Fortran and Python lies beside it, and prints the same.
//   cc linear_regression.c $(pkg-config --cflags --libs kolo) -o linear_regression
//   kolo-run -np 2 ./linear_regression
#include <kolo/kolo_c.h>

#include <stdio.h>
#include <stdlib.h>

static void check(kolo_status status) {
  if (status == KOLO_SUCCESS) return;
  fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_last_error());
  exit(EXIT_FAILURE);
}

int main(void) {
  enum { kPoints = 64, kSteps = 60 };
  check(kolo_init(NULL));
  const int rank = kolo_rank(), size = kolo_size();

  double weights[2] = {0, 0};  // slope and offset of y = 3 x + 1
  check(kolo_broadcast_ordered(weights, 2, KOLO_FLOAT64, 0, 0));
  for (int step = 0; step < kSteps; ++step) {
    double gradient[2] = {0, 0};
    for (int i = rank; i < kPoints; i += size) {  // this rank's share
      const double x = (double)i / kPoints, y = 3 * x + 1;
      const double error = weights[0] * x + weights[1] - y;
      gradient[0] += error * x / kPoints;
      gradient[1] += error / kPoints;
    }
    const int64_t two = 2;
    const kolo_options options = {.name = "gradient"};
    check(kolo_allreduce(gradient, gradient, &two, 1, KOLO_FLOAT64, KOLO_SUM, &options, NULL));
    for (int i = 0; i < 2; ++i) weights[i] -= gradient[i];
  }
  if (rank == 0) printf("slope %.4f, offset %.4f on %d ranks\n", weights[0], weights[1], size);
  check(kolo_shutdown());
  return EXIT_SUCCESS;
}
