// An elastic job in C. In the first world rank 1 kills itself; the others go on until a new process
// has come, and then all take a few steps more. Its output: a line for each world of rank 0.
//
//   kolo-run -np 3 --min-np 2 --restarts 1 elastic_probe [differ]
//
// With `differ` a new process has fewer process sets than the others.
#include <kolo/kolo_c.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t step = 0;

// Ranks 0 and 1 of each world, and the others.
static int color(void* context, int rank, int size, int host, int local_rank) {
  *(int*)context += size > 0 && host >= 0 && local_rank >= 0;
  return rank / 2;
}

// Ends the process; the launcher then ends the job.
static void need(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s (last error: %s)\n", what, kolo_last_error());
  exit(9);
}

// Steps until new processes wait (0), until all is done (1), or until a rank is lost (-1).
static int train(uint32_t pair) {
  int64_t furthest = 0;
  if (kolo_allreduce_ordered(&step, &furthest, 1, KOLO_INT64, KOLO_MAX, 0) != KOLO_SUCCESS) return -1;
  step = furthest;
  const int64_t first = step;
  for (;;) {
    int32_t one = 1, sum = 0, wanted = 0;
    if (kolo_allreduce_ordered(&one, &sum, 1, KOLO_INT32, KOLO_SUM, 0) != KOLO_SUCCESS) return -1;
    need(sum == kolo_size(), "a wrong sum");
    if (kolo_allreduce_ordered(&one, &sum, 1, KOLO_INT32, KOLO_SUM, pair) != KOLO_SUCCESS) return -1;
    need(sum == (kolo_rank() < 2 && kolo_size() > 1 ? 2 : 1), "a wrong sum of a pair");
    ++step;
    if (kolo_generation() == 1 && kolo_rank() == 1 && step == 20) raise(SIGKILL);
    if (kolo_rank() == 0) need(kolo_newcomers(&wanted) == KOLO_SUCCESS, "kolo_newcomers");
    if (kolo_broadcast_ordered(&wanted, 1, KOLO_INT32, 0, 0) != KOLO_SUCCESS) return -1;
    if (wanted > 0) return 0;
    if (kolo_generation() > 1 && kolo_size() == 3 && step == first + 10) return 1;
  }
}

int main(int argc, char** argv) {
  (void)argv;
  int count = 0;
  need(kolo_enter_next_world() == KOLO_ERROR_UNSUPPORTED, "a next world before kolo_init()");
  need(kolo_generation() == -1 && kolo_is_elastic() == -1, "a generation before kolo_init()");
  need(kolo_init(NULL) == KOLO_SUCCESS, "kolo_init");
  need(kolo_is_elastic() == 1, "kolo_is_elastic");
  need(kolo_enter_next_world() == KOLO_ERROR_INVALID_ARGUMENT, "a next world before shutdown");
  uint32_t pair = 0;
  int colors = 0;
  need(kolo_split_world(color, &colors, &pair) == KOLO_SUCCESS, "kolo_split_world");
  need(colors == kolo_size(), "a color that was not asked for");
  uint32_t other = 0;
  if (argc > 1 && kolo_generation() != 0)
    need(kolo_split_world(color, &colors, &other) == KOLO_SUCCESS, "kolo_split_world");
  need(kolo_newcomers(&count) == KOLO_SUCCESS, "kolo_newcomers");
  need(kolo_split_world(color, &colors, &pair) == KOLO_ERROR_INVALID_ARGUMENT, "a late split");
  int enters = kolo_generation() == 0;
  for (int result = 0; result != 1; enters = 1) {
    if (enters) {
      need(kolo_shutdown() == KOLO_SUCCESS, "kolo_shutdown");
      need(kolo_enter_next_world() == KOLO_SUCCESS, "kolo_enter_next_world");
    }
    result = train(pair);
    need(result != -1 || kolo_loss() == KOLO_ERROR_PEER_LOST, "a failure that is no loss");
    if (kolo_rank() == 0) printf("generation %d: %d ranks\n", kolo_generation(), kolo_size());
    fflush(stdout);
  }
  need(step > 20, "a step was lost");
  return 0;
}
