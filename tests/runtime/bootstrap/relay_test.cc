// How ranks pass a long answer of the store on. Whole exchanges by it are in many_ranks_test.
#include "runtime/bootstrap/relay.h"

#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/store_wire.h"
#include "tests/support/deadlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace kolo::relay_test {
namespace {

using ::testing::StartsWith;

TEST(Relay, ChildrenGetTheAnswerAndStrangersDoNot) {
  const auto relay = Relay::open();
  ASSERT_TRUE(relay.ok()) << relay.error().message;
  RelayPlace place{.parent = 5,
                   .from = {"127.0.0.1", relay->port()},
                   .token = std::string(kNonceSize, 't'),
                   .children = 3};
  const std::string body(3'000'000, 'b');
  RelayPlace stranger = place;
  stranger.token.back() = 'x';
  std::thread parent([&] { relay->pass_on(place, body, later()); });
  EXPECT_FALSE(Relay::fetch(stranger, later()).ok());
  std::vector<std::thread> children;
  for (int child = 0; child < place.children; ++child)
    children.emplace_back([&] {
      const auto got = Relay::fetch(place, later());
      ASSERT_TRUE(got.ok()) << got.error().message;
      EXPECT_EQ(*got, body);
    });
  for (std::thread& child : children) child.join();
  parent.join();
}

TEST(Relay, AParentThatIsGoneIsNamed) {
  std::uint16_t port = 0;
  {
    const auto relay = Relay::open();
    ASSERT_TRUE(relay.ok()) << relay.error().message;
    port = relay->port();
  }
  const RelayPlace place{.parent = 5, .from = {"127.0.0.1", port}, .token = {}, .children = 0};
  const auto got = Relay::fetch(place, Deadline::after(std::chrono::milliseconds(100)));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(got.error().message,
              StartsWith(fmt::format("rank 5 at 127.0.0.1:{} does not pass on", port)));
}

}  // namespace
}  // namespace kolo::relay_test
