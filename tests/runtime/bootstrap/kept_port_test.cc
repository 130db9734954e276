// A port that a process keeps: others do not get it, and the process may listen there.
#include "runtime/bootstrap/kept_port.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace kolo::test::kept_port_test {
namespace {

TEST(KeptPort, IsThereForAServer) {
  for (const char* interface : {"", "lo", "no such network"}) {
    const auto kept = keep_port(interface);
    ASSERT_TRUE(kept.ok()) << kept.error().message;
    if (interface == std::string("lo")) {
      EXPECT_EQ(kept->endpoint.host, "127.0.0.1");
    }
    for (int time = 0; time < 2; ++time) {  // again, after a meeting
      const auto listener = listen_at(kept->endpoint);
      ASSERT_TRUE(listener.ok()) << listener.error().message;
      EXPECT_EQ(listener->port, kept->endpoint.port);
      EXPECT_TRUE(connect_to(kept->endpoint, Deadline::after(std::chrono::seconds(5))).ok());
      EXPECT_FALSE(listen_at(kept->endpoint).ok()) << "somebody listens";
    }
    EXPECT_FALSE(connect_to(kept->endpoint, Deadline::after({})).ok()) << "nobody listens";
  }
}

}  // namespace
}  // namespace kolo::test::kept_port_test
