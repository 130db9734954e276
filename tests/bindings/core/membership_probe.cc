// A rank of an elastic job without a launcher: the loop of <kolo/membership.h>. membership_test
// starts it.
//
//   KOLO_RANK=0 KOLO_SIZE=3 KOLO_INIT_METHOD=file:///tmp/job membership_probe STOP
//   membership_probe STOP FOLDER 0 3         # over a user's store, in a folder
//   membership_probe STOP FOLDER 0 3 bare    # … without set_once()
//
// It makes steps until the file STOP is there, and prints a line each time a world stands ("world
// …"), and "done …" at the end.
#include <kolo/kolo.h>
#include <kolo/membership.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

/// A folder of files. link() sets a key once.
class FolderStore : public kolo::KeyValueStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    std::filesystem::rename(written(key, value), path_of(key));
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(path_of(key))) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("timeout");
      std::this_thread::yield();
    }
    return value_of(key);
  }

 protected:
  std::filesystem::path path_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '.');
    return folder_ / key;
  }
  std::filesystem::path written(const std::string& key, const std::string& value) const {
    const auto path = path_of(key).string() + ".part" + std::to_string(::getpid());
    std::ofstream(path, std::ios::binary) << value;
    return path;
  }
  std::string value_of(const std::string& key) const {
    std::ifstream file(path_of(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::filesystem::path folder_;
};

class DecidingStore final : public FolderStore {
 public:
  using FolderStore::FolderStore;
  std::string set_once(const std::string& key, const std::string& value) override {
    const auto path = written(key, value);
    [[maybe_unused]] const int is_there = ::link(path.c_str(), path_of(key).c_str());
    std::filesystem::remove(path);
    return value_of(key);
  }
};

void need(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "pid %d: %s\n", ::getpid(), what);
  std::_Exit(99);
}

std::int64_t step = 0;

/// Until new processes wait (false), or all is done (true).
bool train(const char* stop) {
  std::int64_t furthest = 0;
  kolo::allreduce_ordered(&step, &furthest, 1, kolo::DataType::kInt64, kolo::ReduceOp::kMax);
  step = furthest;
  std::printf("world %d: pid %d is rank %d of %d\n", kolo::membership().generation, ::getpid(),
              kolo::rank(), kolo::size());
  std::fflush(stdout);
  for (;;) {
    std::int32_t one = 1;
    std::int32_t sum = 0;
    kolo::allreduce_ordered(&one, &sum, 1, kolo::DataType::kInt32, kolo::ReduceOp::kSum);
    need(sum == kolo::size(), "a wrong sum");
    ++step;
    std::int32_t wanted = 0;
    if (kolo::rank() == 0) {
      wanted = kolo::newcomers() > 0 ? 1 : 0;
      if (std::filesystem::exists(stop)) wanted = 2;
    }
    kolo::broadcast_ordered(&wanted, 1, kolo::DataType::kInt32, 0);
    if (wanted > 0) return wanted == 2;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // a step's work
  }
}

int run(int argc, char** argv) {
  kolo::InitOptions options;
  if (argc > 2) {
    if (argc > 5) {
      options.store = std::make_shared<FolderStore>(argv[2]);
    } else {
      options.store = std::make_shared<DecidingStore>(argv[2]);
    }
    options.rank = std::atoi(argv[3]);
    options.size = std::atoi(argv[4]);
  }
  kolo::init(options);
  kolo::newcomers();
  std::printf("pid %d: %s\n", ::getpid(), kolo::membership().is_elastic ? "elastic" : "rigid");
  std::fflush(stdout);
  bool enters = kolo::membership().is_elastic && kolo::membership().generation == 0;
  for (bool is_done = false; !is_done; enters = true) {
    if (enters) {
      kolo::shutdown();
      kolo::enter_next_world();
    }
    try {
      is_done = train(argv[1]);
    } catch (const kolo::Exception& error) {
      if (!kolo::loss()) throw;
      std::fprintf(stderr, "pid %d: %s\n", ::getpid(), error.what());
    }
  }
  std::printf("done: pid %d is rank %d of %d\n", ::getpid(), kolo::rank(), kolo::size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pid %d ends: %s\n", ::getpid(), error.what());
    return 1;
  }
}
