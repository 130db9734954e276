// The C interface from C, on 1 to 3 ranks: every function, and what each refuses. Its output is one
// line a failed check; the exit status says whether there was one.
#include <kolo/kolo_c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "rank %d: %s:%d: %s (last error: %s)\n", kolo_rank(), __FILE__, __LINE__, \
              #condition, kolo_last_error());                                                   \
      ++failures;                                                                               \
    }                                                                                           \
  } while (0)
#define OK(call) CHECK((call) == KOLO_SUCCESS)
// The call fails with the status, and its message has the text.
#define FAILS(call, status, text)                     \
  do {                                                \
    CHECK((call) == (status));                        \
    CHECK(strstr(kolo_last_error(), (text)) != NULL); \
  } while (0)

static void before_init(void) {
  float value = 1;
  CHECK(kolo_is_initialized() == 0);
  CHECK(kolo_rank() == -1);
  FAILS(kolo_allreduce(&value, &value, NULL, 0, KOLO_FLOAT32, KOLO_SUM, NULL, NULL),
        KOLO_ERROR_SHUTDOWN, "kolo_allreduce() was called before kolo_init()");
  const kolo_init_options rank_alone = {.rank = 1};
  FAILS(kolo_init(&rank_alone), KOLO_ERROR_INVALID_ARGUMENT, "give both or neither");
  const kolo_init_options unknown = {.init_method = "carrier-pigeon://"};
  FAILS(kolo_init(&unknown), KOLO_ERROR_INVALID_ARGUMENT, "carrier-pigeon");
  OK(kolo_shutdown());
  OK(kolo_abort("nobody hears it"));
}

static void names_and_sizes(void) {
  CHECK(strcmp(kolo_status_name(KOLO_SUCCESS), "success") == 0);
  CHECK(strcmp(kolo_status_name(KOLO_ERROR_PEER_LOST), "peer lost") == 0);
  CHECK(strcmp(kolo_status_name(KOLO_ERROR_INTERNAL + 1), "no status") == 0);
  CHECK(kolo_type_size(KOLO_BFLOAT16) == 2);
  CHECK(kolo_type_size(KOLO_COMPLEX128) == 16);
  CHECK(kolo_type_size(KOLO_COMPLEX128 + 1) == 0);
  CHECK(kolo_type_size(-1) == 0);
  CHECK(strlen(kolo_version()) >= 5);
  CHECK(kolo_mpi_built() == 0 || kolo_mpi_built() == 1);
  CHECK(kolo_cuda_built() == 0 || kolo_cuda_built() == 1);
  CHECK(kolo_nccl_built() == 0 || kolo_nccl_built() == 1);
}

static void queries(void) {
  CHECK(kolo_is_initialized() == 1);
  CHECK(kolo_stop_timeline() == KOLO_ERROR_INVALID_ARGUMENT);
  OK(kolo_start_timeline("/dev/null"));
  CHECK(kolo_start_timeline("/dev/null") == KOLO_ERROR_INVALID_ARGUMENT);
  OK(kolo_stop_timeline());
  CHECK(kolo_rank() >= 0 && kolo_rank() < kolo_size());
  CHECK(kolo_local_rank() == kolo_rank() && kolo_local_size() == kolo_size());
  CHECK(kolo_cross_rank() == 0 && kolo_cross_size() == 1);
  CHECK(kolo_device_ordinal() >= -1);
  FAILS(kolo_init(NULL), KOLO_ERROR_INVALID_ARGUMENT, "twice");
}

static void allreduce(int rank, int size) {
  const int64_t shape[] = {2, 3};
  float input[6], output[6];
  for (int i = 0; i < 6; ++i) input[i] = (float)(rank + i);
  OK(kolo_allreduce(input, output, shape, 2, KOLO_FLOAT32, KOLO_AVERAGE, NULL, NULL));
  for (int i = 0; i < 6; ++i) CHECK(output[i] == (float)(size - 1) / 2 + (float)i);

  // In place, with factors, in memory that ranks share, and with a work.
  void* memory = NULL;
  OK(kolo_allocate(3 * sizeof(double), &memory));
  double* const shared = memory;
  CHECK(shared[0] == 0 && shared[2] == 0);
  for (int i = 0; i < 3; ++i) shared[i] = i;
  const int64_t three = 3;
  const kolo_options options = {.name = "shared", .prescale = 2, .postscale = 0.5};
  kolo_work* work = NULL;
  OK(kolo_allreduce(shared, shared, &three, 1, KOLO_FLOAT64, KOLO_SUM, &options, &work));
  OK(kolo_wait(work));
  int done = 0;
  OK(kolo_test(work, &done));
  CHECK(done == 1);
  int contributors = 0;
  OK(kolo_contributors(work, &contributors));
  CHECK(contributors == size);
  void* none = NULL;
  FAILS(kolo_output(work, &none, NULL), KOLO_ERROR_INVALID_ARGUMENT, "caller's own");
  kolo_work_free(work);
  for (int i = 0; i < 3; ++i) CHECK(shared[i] == size * i);
  OK(kolo_free(memory));
  FAILS(kolo_free(memory), KOLO_ERROR_INVALID_ARGUMENT, "freed already");
  OK(kolo_free(NULL));

  // Rank 0 alone takes part.
  const kolo_options absent = {.name = "absent", .absent = rank != 0};
  int32_t one = rank == 0 ? 7 : -1, result = 0;
  OK(kolo_allreduce(&one, &result, NULL, 0, KOLO_INT32, KOLO_MAX, &absent, &work));
  OK(kolo_wait(work));
  OK(kolo_contributors(work, &contributors));
  CHECK(contributors == 1);
  kolo_work_free(work);
  kolo_work_free(NULL);
}

static void group(int size) {
  const int64_t two = 2;
  float a[2] = {1, 2};
  int64_t b[2] = {3, 4};
  const kolo_member members[] = {
      {.input = a, .output = a, .shape = &two, .dimensions = 1, .type = KOLO_FLOAT32},
      {.input = b,
       .output = b,
       .shape = &two,
       .dimensions = 1,
       .type = KOLO_INT64,
       .name = "second"}};
  const kolo_options options = {.name = "group"};
  OK(kolo_grouped_allreduce(members, 2, KOLO_SUM, &options, NULL));
  CHECK(a[1] == (float)(2 * size) && b[0] == 3 * size);
  kolo_work* work = NULL;
  OK(kolo_grouped_allreduce(members, 2, KOLO_SUM, &options, &work));
  OK(kolo_wait(work));
  int count = 0;
  FAILS(kolo_contributors(work, &count), KOLO_ERROR_INVALID_ARGUMENT, "group");
  kolo_work_free(work);
  CHECK(b[1] == 4 * size * size);
  FAILS(kolo_grouped_allreduce(NULL, 2, KOLO_SUM, &options, NULL), KOLO_ERROR_INVALID_ARGUMENT,
        "members");
  FAILS(kolo_grouped_allreduce(members, -1, KOLO_SUM, &options, NULL), KOLO_ERROR_INVALID_ARGUMENT,
        "-1 members");
}

typedef struct Room {
  float values[64];
  int64_t rows;
} Room;

static void* room_for(void* context, const int64_t* shape, int dimensions) {
  Room* const room = context;
  if (dimensions != 2 || shape[0] * shape[1] > 64) return NULL;
  room->rows = shape[0];
  return room->values;
}

static void rows(int rank, int size) {
  // Rank r has r + 1 rows of 2.
  float input[8];
  for (int i = 0; i < 2 * (rank + 1); ++i) input[i] = (float)(10 * rank + i);
  const int64_t shape[] = {rank + 1, 2};
  kolo_work* work = NULL;
  OK(kolo_allgather(input, shape, 2, KOLO_FLOAT32, NULL, &work));
  OK(kolo_wait(work));
  void* memory = NULL;
  int64_t count = 0;
  OK(kolo_output(work, &memory, &count));
  CHECK(count == (int64_t)size * (size + 1) / 2);
  int64_t splits[8];
  OK(kolo_received_splits(work, splits, size));
  FAILS(kolo_received_splits(work, splits, size + 1), KOLO_ERROR_INVALID_ARGUMENT, "room for");
  const float* gathered = memory;
  for (int r = 0; r < size; ++r) {
    CHECK(splits[r] == r + 1);
    for (int i = 0; i < 2 * (r + 1); ++i) CHECK(*gathered++ == (float)(10 * r + i));
  }
  kolo_work_free(work);

  // The same into memory of the caller's, blocking.
  Room room = {.rows = 0};
  const kolo_options options = {.allocate = room_for, .context = &room};
  OK(kolo_allgather(input, shape, 2, KOLO_FLOAT32, &options, NULL));
  CHECK(room.rows == count);
  CHECK(room.values[2 * (count - 1)] == (float)(10 * (size - 1) + 2 * size - 2));
  FAILS(kolo_allgather(input, shape, 2, KOLO_FLOAT32, NULL, NULL), KOLO_ERROR_INVALID_ARGUMENT,
        "nobody would find the output");

  OK(kolo_gather(input, shape, 2, KOLO_FLOAT32, size - 1, NULL, &work));
  OK(kolo_wait(work));
  OK(kolo_output(work, &memory, &count));
  CHECK(count == (rank == size - 1 ? (int64_t)size * (size + 1) / 2 : 0));
  kolo_work_free(work);

  // One row to each rank, then all rows to rank 0.
  int32_t table[8][2], *received;
  for (int r = 0; r < size; ++r) table[r][0] = rank, table[r][1] = r;
  const int64_t square[] = {size, 2};
  OK(kolo_alltoall(table, square, 2, KOLO_INT32, NULL, NULL, &work));
  OK(kolo_wait(work));
  OK(kolo_output(work, &memory, &count));
  received = memory;
  CHECK(count == size);
  for (int r = 0; r < size; ++r) CHECK(received[2 * r] == r && received[2 * r + 1] == rank);
  kolo_work_free(work);
  int64_t to_the_first[8] = {size};
  OK(kolo_alltoall(table, square, 2, KOLO_INT32, to_the_first, NULL, &work));
  OK(kolo_wait(work));
  OK(kolo_output(work, &memory, &count));
  CHECK(count == (rank == 0 ? size * size : 0));
  kolo_work_free(work);

  OK(kolo_reducescatter(table, square, 2, KOLO_INT32, KOLO_SUM, NULL, &work));
  OK(kolo_wait(work));
  OK(kolo_output(work, &memory, &count));
  received = memory;
  CHECK(count == 1 && received[0] == size * (size - 1) / 2 && received[1] == size * rank);
  kolo_work_free(work);

  // The root's rows: all but one to the last rank, which is also the first of one rank.
  int64_t parts[8] = {1};
  parts[size - 1] = size == 1 ? 1 : size - 1;
  if (size > 2) parts[1] = 0, parts[size - 1] = size - 1;
  const int64_t any[] = {rank == 0 ? size : 0, 2};
  OK(kolo_scatter(rank == 0 ? table : NULL, any, 2, KOLO_INT32, 0,
                  rank == 0 ? parts : (const int64_t*)NULL, NULL, &work));
  OK(kolo_wait(work));
  OK(kolo_output(work, &memory, &count));
  CHECK(count == (rank == 0 ? parts[0] : rank == size - 1 ? size - 1 : 0));
  kolo_work_free(work);
}

// What is freed before it is done goes on: the operation keeps its output.
static void freed_early(void) {
  static float input[100000];  // stays until the first one is done, whenever that is
  const int64_t count = 100000;
  kolo_work* work = NULL;
  OK(kolo_allgather(input, &count, 1, KOLO_FLOAT32, NULL, &work));
  kolo_work_free(work);
  OK(kolo_allgather(input, &count, 1, KOLO_FLOAT32, NULL, &work));
  OK(kolo_wait(work));
  kolo_work_free(work);
}

static void others(int rank, int size) {
  int16_t values[2] = {(int16_t)rank, (int16_t)(2 * rank)};
  const int64_t two = 2;
  OK(kolo_broadcast(values, &two, 1, KOLO_INT16, size - 1, NULL, NULL));
  CHECK(values[1] == 2 * (size - 1));
  OK(kolo_barrier(NULL, NULL));

  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  int32_t mine = rank, theirs = -1;
  if (size > 1) {
    kolo_work* work = NULL;
    OK(kolo_send(&mine, 1, KOLO_INT32, next, 5, NULL, &work));
    OK(kolo_recv(&theirs, 1, KOLO_INT32, previous, 5, NULL, NULL));
    OK(kolo_wait(work));
    kolo_work_free(work);
    CHECK(theirs == previous);
  }
  int last = -1;
  OK(kolo_join(0, &last));
  CHECK(last >= 0 && last < size);
  OK(kolo_join(0, NULL));
}

static void process_sets(int rank, int size) {
  uint32_t set = 0;
  FAILS(kolo_add_process_set(NULL, 1, &set), KOLO_ERROR_INVALID_ARGUMENT, "ranks is null");
  FAILS(kolo_add_process_set(&size, 1, &set), KOLO_ERROR_INVALID_ARGUMENT, "");
  int place = -2, count = 0, ranks[8];
  OK(kolo_process_set_rank(0, &place));
  OK(kolo_process_set_size(0, &count));
  OK(kolo_process_set_ranks(0, ranks));
  CHECK(place == rank && count == size && ranks[size - 1] == size - 1);
  if (size < 3) return;
  const int ends[] = {0, size - 1};
  OK(kolo_add_process_set(ends, 2, &set));
  OK(kolo_process_set_rank(set, &place));
  CHECK(place == (rank == 0 ? 0 : rank == size - 1 ? 1 : -1));
  if (place >= 0) {
    const kolo_options options = {.process_set = set};
    uint8_t one = 1;
    OK(kolo_allreduce(&one, &one, NULL, 0, KOLO_UINT8, KOLO_SUM, &options, NULL));
    CHECK(one == 2);
    OK(kolo_allreduce_ordered(&one, &one, 1, KOLO_UINT8, KOLO_PRODUCT, set));
    CHECK(one == 4);
  }
  OK(kolo_barrier(NULL, NULL));
  OK(kolo_remove_process_set(set));
  FAILS(kolo_process_set_size(set, &count), KOLO_ERROR_INVALID_ARGUMENT, "");
}

static void ordered(int rank, int size) {
  int32_t value = rank + 1, all[8], received[8], sum = 0;
  OK(kolo_allreduce_ordered(&value, &sum, 1, KOLO_INT32, KOLO_SUM, 0));
  CHECK(sum == size * (size + 1) / 2);
  OK(kolo_allgather_ordered(&value, all, 1, KOLO_INT32, 0));
  CHECK(all[size - 1] == size && all[0] == 1);
  OK(kolo_alltoall_ordered(all, received, 1, KOLO_INT32, 0));
  for (int r = 0; r < size; ++r) CHECK(received[r] == rank + 1);
  OK(kolo_reducescatter_ordered(all, &value, 1, KOLO_INT32, KOLO_SUM, 0));
  CHECK(value == size * (rank + 1));
  OK(kolo_broadcast_ordered(&value, 1, KOLO_INT32, 0, 0));
  CHECK(value == size);
  value = rank + 1;
  OK(kolo_gather_ordered(&value, rank == size - 1 ? all : NULL, 1, KOLO_INT32, size - 1, 0));
  for (int r = 0; r < size && rank == size - 1; ++r) CHECK(all[r] == r + 1);
  OK(kolo_scatter_ordered(rank == size - 1 ? all : NULL, &sum, 1, KOLO_INT32, size - 1, 0));
  CHECK(sum == rank + 1);
  OK(kolo_barrier_ordered(0));
}

/* What one rank alone gets wrong in a call with a name is told to all. */
static void told_to_all(int rank, int size) {
  if (size == 1) return;
  float vector[8] = {0};
  const int64_t one = 1;
  kolo_work* work = NULL;
  const kolo_options wrong = {.name = "wrong"};
  const kolo_type type = rank == 1 ? 99 : KOLO_FLOAT32;
  const char* told = "'wrong': rank 1: kolo_allreduce(): there is no element type 99";
  FAILS(kolo_allreduce(vector, vector, &one, 1, type, KOLO_SUM, &wrong, NULL),
        KOLO_ERROR_INVALID_ARGUMENT, told);
  OK(kolo_allreduce(vector, vector, &one, 1, type, KOLO_SUM, &wrong, &work));
  FAILS(kolo_wait(work), KOLO_ERROR_INVALID_ARGUMENT, told);
  kolo_work_free(work);
  OK(kolo_broadcast(vector, rank == 1 ? NULL : &one, 1, KOLO_FLOAT32, 0, &wrong, &work));
  FAILS(kolo_wait(work), KOLO_ERROR_INVALID_ARGUMENT, "rank 1: kolo_broadcast(): shape is null");
  kolo_work_free(work);
  OK(kolo_allgather(vector, &one, 1, type, &wrong, &work));
  FAILS(kolo_wait(work), KOLO_ERROR_INVALID_ARGUMENT, "rank 1: kolo_allgather(): there is no");
  kolo_work_free(work);
  const kolo_member member = {
      .input = vector, .output = vector, .shape = &one, .dimensions = 1, .type = type};
  FAILS(kolo_grouped_allreduce(&member, 1, KOLO_SUM, &wrong, NULL), KOLO_ERROR_INVALID_ARGUMENT,
        "'wrong/0': rank 1: kolo_grouped_allreduce(): there is no element type 99");
  // A message of one rank is told to its peer.
  if (rank == 1) {
    FAILS(kolo_send(vector, 1, 99, 0, 7, NULL, NULL), KOLO_ERROR_INVALID_ARGUMENT,
          "kolo_send(): there is no element type 99");
    FAILS(kolo_recv(NULL, 1, KOLO_FLOAT32, 0, 7, NULL, NULL), KOLO_ERROR_INVALID_ARGUMENT,
          "null pointer");
  } else if (rank == 0) {
    FAILS(kolo_recv(vector, 1, KOLO_FLOAT32, 1, 7, NULL, NULL), KOLO_ERROR_INVALID_ARGUMENT,
          "rank 1, its other side, has refused it: kolo_send(): there is no element type 99");
    FAILS(kolo_send(vector, 1, KOLO_FLOAT32, 1, 7, NULL, NULL), KOLO_ERROR_INVALID_ARGUMENT,
          "rank 1, its other side, has refused it: the memory is a null pointer");
  }
}

static void refusals(int rank, int size) {
  float value = 1;
  const int64_t one = 1, many = rank + 2;
  FAILS(kolo_allreduce(&value, &value, &one, 1, 12, KOLO_SUM, NULL, NULL),
        KOLO_ERROR_INVALID_ARGUMENT, "no element type 12");
  FAILS(kolo_allreduce(&value, &value, &one, 1, KOLO_FLOAT32, -1, NULL, NULL),
        KOLO_ERROR_INVALID_ARGUMENT, "no reduction -1");
  FAILS(kolo_allreduce(&value, &value, NULL, 1, KOLO_FLOAT32, KOLO_SUM, NULL, NULL),
        KOLO_ERROR_INVALID_ARGUMENT, "shape is null");
  FAILS(kolo_allreduce(&value, &value, &one, -1, KOLO_FLOAT32, KOLO_SUM, NULL, NULL),
        KOLO_ERROR_INVALID_ARGUMENT, "-1 dimensions");
  kolo_work* work = (kolo_work*)&value;
  const kolo_options device = {.on_device = 1};
  CHECK(kolo_allgather(&value, &one, 1, KOLO_FLOAT32, &device, &work) != KOLO_SUCCESS);
  CHECK(work == NULL);
  FAILS(kolo_wait(NULL), KOLO_ERROR_INVALID_ARGUMENT, "work is null");
  FAILS(kolo_allocate(1, NULL), KOLO_ERROR_INVALID_ARGUMENT, "memory is null");
  if (size == 1) return;

  // Ranks disagree: both values are in the message, and kolo stays usable.
  float vector[8] = {0};
  const kolo_options options = {.name = "uneven"};
  FAILS(kolo_allreduce(vector, vector, &many, 1, KOLO_FLOAT32, KOLO_SUM, &options, NULL),
        KOLO_ERROR_MISMATCH, "uneven");
  CHECK(strstr(kolo_last_error(), "[2]") != NULL && strstr(kolo_last_error(), "[3]") != NULL);
  OK(kolo_allreduce(vector, vector, &many, 1, KOLO_FLOAT32, KOLO_SUM, &options, &work));
  FAILS(kolo_wait(work), KOLO_ERROR_MISMATCH, "uneven");
  int count = 0;
  FAILS(kolo_contributors(work, &count), KOLO_ERROR_MISMATCH, "uneven");
  kolo_work_free(work);
}

/* Rank 0 gives numbers that mean nothing, and goes on: its next call is none of the others'. */
static void out_of_step(int rank, int size) {
  if (size == 1) return;
  int32_t value = 1;
  if (rank == 0) {
    FAILS(kolo_allreduce_ordered(&value, &value, 1, 99, -1, 0), KOLO_ERROR_INVALID_ARGUMENT,
          "no element type 99");
  }
  // A rank that comes when the others have found it is told of their failure, with the same reason.
  const kolo_status status = kolo_allreduce_ordered(&value, &value, 1, KOLO_INT32, KOLO_SUM, 0);
  CHECK(status == KOLO_ERROR_MISMATCH || status == KOLO_ERROR_ABORTED);
  CHECK(strstr(kolo_last_error(), "at once, for its arguments") != NULL);
  CHECK(kolo_barrier(NULL, NULL) != KOLO_SUCCESS);
}

int main(void) {
  before_init();
  names_and_sizes();
  CHECK(kolo_init(NULL) == KOLO_SUCCESS);
  if (failures > 0) return EXIT_FAILURE;
  const int rank = kolo_rank(), size = kolo_size();
  queries();
  allreduce(rank, size);
  group(size);
  rows(rank, size);
  freed_early();
  others(rank, size);
  process_sets(rank, size);
  told_to_all(rank, size);
  ordered(rank, size);
  refusals(rank, size);
  OK(kolo_barrier(NULL, NULL));
  out_of_step(rank, size);
  OK(kolo_shutdown());
  CHECK(kolo_rank() == -1);
  if (failures == 0) printf("c_api_test: rank %d of %d passed\n", rank, size);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
