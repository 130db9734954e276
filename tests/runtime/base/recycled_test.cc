// Recycled: memory of freed objects comes back, and no two objects have the same.
#include "runtime/base/recycled.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace kolo {
namespace {

struct Numbered {
  explicit Numbered(std::uint64_t of) : number(of) {}
  std::uint64_t number;
  std::vector<std::uint64_t> others = std::vector<std::uint64_t>(3, number);
};

using Shared = std::shared_ptr<Numbered>;

Shared make(std::uint64_t number) {
  return std::allocate_shared<Numbered>(Recycled<Numbered>(), number);
}

TEST(Recycled, LiveObjectsHaveMemoryOfTheirOwn) {
  constexpr std::size_t kObjects = 6000;  // more than it keeps
  for (int round = 0; round < 3; ++round) {
    std::vector<Shared> objects;
    std::set<const Numbered*> places;
    for (std::size_t i = 0; i < kObjects; ++i) {
      objects.push_back(make(i));
      places.insert(objects.back().get());
    }
    EXPECT_EQ(places.size(), kObjects);
    for (std::size_t i = 0; i < kObjects; ++i) EXPECT_EQ(objects[i]->others.back(), i);
  }
}

TEST(Recycled, ThreadsMakeAndEndObjectsAtOnce) {
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (std::uint64_t round = 0; round < 200; ++round) {
        std::vector<Shared> objects;
        for (std::uint64_t i = 0; i < 50; ++i) objects.push_back(make(thread * 1000 + i));
        for (std::uint64_t i = 0; i < 50; ++i) {
          ASSERT_EQ(objects[i]->number, thread * 1000 + i);
          ASSERT_EQ(objects[i]->others.front(), thread * 1000 + i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Recycled, TheLastOneFreedComesFirst) {
  Shared first = make(1);
  const void* const place = first.get();
  first.reset();
  EXPECT_EQ(make(2).get(), place);
}
#endif

}  // namespace
}  // namespace kolo
