// Proves the schedules of the binomial broadcast with the checker for every size up to 64.
#include "runtime/collectives/broadcast_binomial.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::broadcast_binomial_test {
namespace {

TEST(BroadcastBinomial, ReachesAllFromEveryRootInLogarithmicallyManyMessages) {
  for (int size = 1; size <= kLargestWorld; ++size)
    for (const int root : roots_of(size))
      for (const std::uint64_t count : {0U, 1U, 7U})
        for (const bool input_is_output : {false, true}) {
          const auto schedules = schedules_of(
              size, [&](int rank) { return broadcast_binomial(rank, size, root, count); });
          const Traffic traffic = prove(schedules, {.kind = OperationKind::kBroadcast,
                                                    .root = root,
                                                    .input_is_output = input_is_output});
          EXPECT_EQ(total(traffic.elements), count * static_cast<std::uint64_t>(size - 1));
          const auto rounds =
              static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(size - 1)));
          EXPECT_EQ(traffic.messages[static_cast<std::size_t>(root)], count == 0 ? 0 : rounds);
          for (const std::uint64_t messages : traffic.messages) EXPECT_LE(messages, rounds);
        }
}

}  // namespace
}  // namespace kolo::test::broadcast_binomial_test
