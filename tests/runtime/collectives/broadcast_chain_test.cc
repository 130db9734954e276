// Proves the chain broadcast's schedules with the checker for every size up to 64.
#include "runtime/collectives/broadcast_chain.h"

#include "tests/support/sanitizers.h"
#include "tests/support/schedule_checker.h"

#include <gtest/gtest.h>

namespace kolo::test::broadcast_chain_test {
namespace {

class BroadcastChain : public ::testing::TestWithParam<int> {};

TEST_P(BroadcastChain, IsRightFromEveryRoot) {
  const int size = GetParam();
  const ChainOptions options{.chunk_elements = 3, .chunks_in_flight = 2};
  for (int root = 0; root < size; ++root)
    for (const std::uint64_t count : {0u, 1u, 3u, 4u, 31u}) {
      SCOPED_TRACE(::testing::Message()
                   << size << " ranks, root " << root << ", " << count << " elements");
      std::vector<Schedule> schedules;
      for (int rank = 0; rank < size; ++rank)
        schedules.push_back(broadcast_chain(rank, size, root, count, options));
      for (const bool input_is_output : {false, true}) {
        const auto traffic = check_schedules(
            schedules,
            {.kind = OperationKind::kBroadcast, .root = root, .input_is_output = input_is_output});
        ASSERT_TRUE(traffic.ok()) << traffic.error().message;
        const int last = (root + size - 1) % size;
        for (int rank = 0; rank < size; ++rank)
          EXPECT_EQ(traffic->elements[static_cast<std::size_t>(rank)], rank == last ? 0 : count);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BroadcastChain, ::testing::Range(1, kLargestWorld + 1));

}  // namespace
}  // namespace kolo::test::broadcast_chain_test
