// Start-up: which part takes how long, and what the store sends.
#include "tools/simulate/start_up.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

namespace kolo::simulate {
namespace {

Machine machine_of(int hosts, int ranks_per_host) {
  return {.hosts = hosts, .ranks_per_host = ranks_per_host};
}

const StartUpPart& part_of(const std::vector<StartUpPart>& parts, std::string_view name) {
  for (const StartUpPart& part : parts)
    if (part.name == name) return part;
  ADD_FAILURE() << "no part " << name;
  return parts.front();
}

double total_of(const std::vector<StartUpPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const StartUpPart& part) { return sum + part.us; });
}

TEST(StartUp, RanksOfAHostShareItsCores) {
  const StartUpCosts costs{.spawn = 0, .process = 1000};
  const auto launch = [&](int cores) {
    return part_of(start_up_of(machine_of(4, 8), cores, costs), "launch").us;
  };
  EXPECT_DOUBLE_EQ(launch(0), 1000);
  EXPECT_DOUBLE_EQ(launch(8), 1000);
  EXPECT_DOUBLE_EQ(launch(2), 4000);
  EXPECT_DOUBLE_EQ(launch(3), 3000);
}

TEST(StartUp, ALauncherStartsOneProcessAfterTheOther) {
  const StartUpCosts costs{.spawn = 100, .process = 1000};
  EXPECT_DOUBLE_EQ(part_of(start_up_of(machine_of(4, 8), 0, costs), "launch").us, 8 * 100 + 1000);
}

TEST(StartUp, OnlyWhatDiffersIsSentToAllByAll) {
  const auto sent = [](int hosts, std::string_view part) {
    return part_of(start_up_of(machine_of(hosts, 8)), part).bytes;
  };
  for (const std::string_view part : {"handshake", "windows"}) {
    const double growth = static_cast<double>(sent(24, part)) / static_cast<double>(sent(8, part));
    EXPECT_NEAR(growth, 9, 0.2) << part;
  }
  EXPECT_EQ(sent(24, "devices"), 3 * sent(8, "devices"));
  EXPECT_EQ(sent(24, "clocks"), 3 * sent(8, "clocks"));
  EXPECT_EQ(sent(1, "clocks"), 0u);
}

TEST(StartUp, ExchangesOfManyRanksPassTheStoreBy) {
  const auto handshake = [](int hosts) {
    return part_of(start_up_of(machine_of(hosts, 8)), "handshake");
  };
  // The store sends one rank the answer, and all others where it comes from.
  EXPECT_NEAR(static_cast<double>(handshake(256).bytes) / static_cast<double>(handshake(128).bytes),
              2, 0.01);
  EXPECT_LT(handshake(4096).us, 2e6);
  for (const std::string_view part : {"windows", "devices", "clocks"}) {
    const auto of = [part](int hosts) {
      return part_of(start_up_of(machine_of(hosts, 8), 0, {.hear = 0}), part);
    };
    EXPECT_EQ(of(32).store_us, 0) << part;
    EXPECT_GT(of(31).store_us, 0) << part;
    // 32 times as many ranks have five more hops.
    EXPECT_LT(of(1024).us, 6 * of(32).us) << part;
  }
}

TEST(StartUp, AnswersLeaveByTheCardOfTheStoresHost) {
  Machine slow = machine_of(64, 1);
  slow.across.gigabytes_per_second = 1e-3;
  const auto parts = start_up_of(slow);
  const StartUpPart& handshake = part_of(parts, "handshake");
  // But for the answer to the store's own host.
  const double bytes = static_cast<double>(handshake.bytes) * 63 / 64;
  EXPECT_NEAR(handshake.us, bytes, 0.02 * bytes);
}

TEST(StartUp, RankZeroHearsOfManyRanks) {
  const auto clocks = [](int hosts, double hear) {
    return part_of(start_up_of(machine_of(hosts, 1), 0, {.hear = hear}), "clocks").us;
  };
  EXPECT_DOUBLE_EQ(clocks(64, 1000), clocks(64, 0));
  EXPECT_NEAR(clocks(65, 1000) - clocks(65, 0), 64'000, 100);
}

TEST(StartUp, GoesToManyRanks) {
  const auto parts = start_up_of(machine_of(4096, 8));
  EXPECT_EQ(parts.size(), 10u);
  EXPECT_GT(total_of(parts), total_of(start_up_of(machine_of(512, 8))));
}

}  // namespace
}  // namespace kolo::simulate
