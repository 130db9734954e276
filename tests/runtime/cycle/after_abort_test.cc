// A job that has failed, until its ranks end: in this time a trainer may write a checkpoint.
#include "tests/support/local_world.h"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <ctime>
#include <thread>

namespace kolo::test::after_abort_test {
namespace {

double processor_seconds() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

TEST(AfterAbort, NobodyIsBusy) {
  std::barrier all(2);
  run_local_world(2, [&](int rank, Runtime& runtime) {
    std::vector<float> values(10);
    EXPECT_TRUE(submit(runtime, allreduce_of("t", values))->wait().ok());
    all.arrive_and_wait();
    if (rank == 0) runtime.abort("enough");
    const auto work = runtime.submit(allreduce_of("u", values));
    if (work.ok()) {
      EXPECT_FALSE((*work)->wait().ok());
    }
    all.arrive_and_wait();
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the measured second
    EXPECT_LT(processor_seconds() - before, 0.2);
    all.arrive_and_wait();
  });
}

}  // namespace
}  // namespace kolo::test::after_abort_test
