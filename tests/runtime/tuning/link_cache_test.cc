// The file of measured links: what is read back, what is refused, and that all ranks take rank 0's.
#include "runtime/tuning/link_cache.h"

#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

constexpr LinkCosts kCosts{
    .inside = {.latency_us = 0.1, .us_per_byte = 1.0 / 3, .reduce_us_per_byte = 1e-5},
    .across = {.latency_us = 50.25,
               .us_per_byte = 8e-3,
               .reduce_us_per_byte = 0,
               .crowd_us = 12.5,
               .early_us = 0.75}};

class LinkCacheFile : public ::testing::Test {
 protected:
  LinkCacheFile() {
    std::string name = ::testing::TempDir() + "kolo-links-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    folder_ += "/below/it";
  }
  ~LinkCacheFile() override {
    std::filesystem::remove_all(std::filesystem::path(folder_).parent_path().parent_path());
  }
  LinkCache cache(const std::string& topology = "tcp; a a b b") const {
    return {folder_, topology};
  }
  void write(const std::string& text) const { std::ofstream(cache().path()) << text; }
  std::string text() const {
    std::ifstream file(cache().path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string refusal() const {
    const auto loaded = cache().load();
    return loaded.ok() ? "taken" : loaded.error().message;
  }

  std::string folder_;
};

TEST_F(LinkCacheFile, GivesBackWhatWasStored) {
  ASSERT_TRUE(cache().load().ok());
  EXPECT_FALSE((*cache().load()).has_value());
  const Status stored = cache().store(kCosts);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  const auto loaded = cache().load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_TRUE(loaded->has_value());
  for (const auto link : {&LinkCosts::inside, &LinkCosts::across})
    for (const auto value : kLinkCostNumbers)
      EXPECT_EQ(((**loaded).*link).*value, (kCosts.*link).*value);
  EXPECT_FALSE((*cache("tcp; a b a b").load()).has_value()) << "of other hosts";
}

TEST_F(LinkCacheFile, IsTheUsersOwnAndLeavesNoDraft) {
  ASSERT_TRUE(cache().store(kCosts).ok());
  struct stat status = {};
  ASSERT_EQ(::stat(cache().path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) files += entry.exists();
  EXPECT_EQ(files, 1);
}

TEST_F(LinkCacheFile, HoldsAWorldOfManyRanks) {
  const LinkCache of_many = cache("tcp; " + std::string(200'000, 'h'));
  ASSERT_TRUE(of_many.store(kCosts).ok());
  const auto loaded = of_many.load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message.substr(0, 200);
  EXPECT_TRUE(loaded->has_value());
}

TEST_F(LinkCacheFile, EveryTornFileIsRefused) {
  ASSERT_TRUE(cache().store(kCosts).ok());
  const std::string whole = text();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(whole.substr(0, length));
    EXPECT_NE(refusal(), "taken") << length;
  }
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string other = whole;
    other[place] = other[place] == '7' ? '8' : '7';
    write(other);
    EXPECT_NE(refusal(), "taken") << place;
  }
  write(whole + "\n");
  EXPECT_NE(refusal(), "taken");
  write(whole);
  EXPECT_EQ(refusal(), "taken");
}

TEST_F(LinkCacheFile, ForeignFilesAreRefusedByName) {
  ASSERT_TRUE(cache().store(kCosts).ok());
  ASSERT_EQ(::chmod(cache().path().c_str(), 0666), 0);
  EXPECT_NE(refusal().find(cache().path()), std::string::npos);
  EXPECT_NE(refusal().find("KOLO_LINK_CACHE=0"), std::string::npos);
  std::filesystem::remove(cache().path());
  std::filesystem::create_symlink("/dev/null", cache().path());
  EXPECT_NE(refusal(), "taken");
  std::filesystem::remove(cache().path());
  ASSERT_EQ(::mkfifo(cache().path().c_str(), 0600), 0);
  EXPECT_NE(refusal(), "taken");
  std::filesystem::remove(cache().path());
  std::filesystem::create_directory(cache().path());
  EXPECT_NE(refusal(), "taken");
  EXPECT_FALSE(cache().store(kCosts).ok());
}

TEST_F(LinkCacheFile, OldMeasurementsAreMadeAgain) {
  ASSERT_TRUE(cache().store(kCosts).ok());
  std::filesystem::last_write_time(
      cache().path(),
      std::filesystem::file_time_type::clock::now() - LinkCache::kLifetime - std::chrono::hours(1));
  const auto loaded = cache().load();
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->has_value());
  // Storing other costs removes them.
  ASSERT_TRUE(cache("tcp; a b a b").store(kCosts).ok());
  EXPECT_FALSE(std::filesystem::exists(cache().path()));
  EXPECT_TRUE(std::filesystem::exists(cache("tcp; a b a b").path()));
}

TEST_F(LinkCacheFile, NoHomeDirectoryIsMade) {
  EXPECT_FALSE(LinkCache(folder_ + "/.cache/kolo", "tcp; a b").store(kCosts).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST(LinkCache, NowhereKeepsNothing) {
  const LinkCache cache("", "tcp; a b");
  EXPECT_TRUE(cache.store(kCosts).ok());
  EXPECT_FALSE((*cache.load()).has_value());
  EXPECT_FALSE(LinkCache("/proc/nowhere", "tcp; a b").store(kCosts).ok());
}

TEST(LinkCache, AllRanksTakeRankZeros) {
  constexpr int kSize = 3;
  for (const bool known : {true, false}) {
    MemoryStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank)
      threads.emplace_back([&, rank] {
        StoreBootstrap bootstrap(store, rank, kSize);
        // The other ranks' own numbers must not matter.
        LinkCosts mine = kCosts;
        if (rank > 0) mine.inside.latency_us = 1000 * rank;
        const bool has = rank > 0 || known;
        const auto shared = share_costs(bootstrap, has ? std::optional(mine) : std::nullopt,
                                        Deadline::after(std::chrono::seconds(20)));
        ASSERT_TRUE(shared.ok()) << shared.error().message;
        ASSERT_EQ(shared->has_value(), known);
        if (known) {
          EXPECT_EQ((**shared).inside.latency_us, kCosts.inside.latency_us);
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace kolo::test
