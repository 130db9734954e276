// The global interface in real processes: started again after shutdown(), and forked after init().
// Alone and under mpirun, on all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/kolo.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace {

using kolo::test::message_of;
using testing::HasSubstr;

double sum_of_ones() {
  double one = 1;
  kolo::allreduce(&one, &one, {1}, kolo::DataType::kFloat64, {.name = "ones"});
  return one;
}

/// Runs `body` in a forked child and returns its exit status. The child leaves by exit(), so that
/// what the process has registered for its end runs there, too.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) std::exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Api, CallsBeforeInitNameThemselves) {
  EXPECT_FALSE(kolo::is_initialized());
  EXPECT_THAT(message_of([] { static_cast<void>(kolo::local_rank()); }),
              HasSubstr("kolo::local_rank() was called before kolo::init()"));
  kolo::shutdown();  // without effect
}

TEST(Api, StartsAgainAfterShutdown) {
  for (int round = 0; round < 3; ++round) {
    kolo::init();
    EXPECT_TRUE(kolo::is_initialized());
    EXPECT_THAT(message_of([] { kolo::init(); }), HasSubstr("called twice"));
    EXPECT_EQ(sum_of_ones(), kolo::size());
    kolo::barrier();  // nobody leaves while another is at work
    kolo::shutdown();
    EXPECT_FALSE(kolo::is_initialized());
    EXPECT_THAT(message_of([] { static_cast<void>(sum_of_ones()); }),
                HasSubstr("after kolo::shutdown()"));
  }
}

TEST(Api, AForkedChildIsToldAndHarmsNobody) {
  kolo::init();
  EXPECT_EQ(sum_of_ones(), kolo::size());
  const int told = in_child([] {
    const std::string message = message_of([] { static_cast<void>(sum_of_ones()); });
    const bool right =
        message.find("forked after kolo::init()") != std::string::npos &&
        message_of([] { kolo::init(); }).find("kolo::init() was called in") != std::string::npos &&
        !kolo::is_initialized();
    kolo::shutdown();
    return right ? 7 : 1;
  });
  EXPECT_EQ(told, 7);
  EXPECT_EQ(sum_of_ones(), kolo::size()) << "the parent goes on, and so do its peers";
  kolo::barrier();
  kolo::shutdown();
}

}  // namespace
