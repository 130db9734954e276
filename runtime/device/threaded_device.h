// ThreadedDevice: a Device that shares large sums and copies out among threads, for hosts with more
// cores than ranks: one core moves less than a fast network card does. KOLO_REDUCE_THREADS says how
// many. Every element is computed as by the device beneath, so results do not depend on the number.
#pragma once

#include "runtime/device/device.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace kolo {

class ThreadedDevice final : public Device {
 public:
  /// Fewer bytes are not worth the meeting of threads.
  static constexpr std::size_t kLeastBytes = 256 << 10;

  /// `inner` outlives it. `threads` with the calling one; 1 starts none.
  ThreadedDevice(const Device& inner, int threads);
  ~ThreadedDevice() override;

  /// What does the same soonest: without threads the inner one.
  const Device& quickest() const { return shares_ > 1 ? *this : inner_; }

  void copy(DataType type, std::byte* destination, const std::byte* source, std::size_t count,
            Scale scale) const override;
  void stream(std::byte* destination, const std::byte* source, std::size_t bytes) const override;
  using Device::reduce;
  void reduce(DataType type, ReduceOp op, std::span<std::byte* const> destinations,
              std::span<const std::byte* const> sources, std::size_t count, Scale scale,
              Stores stores) const override;
  void reduce_mixed(DataType target, ReduceOp op, std::span<std::byte* const> destinations,
                    std::span<const TypedSource> sources, std::size_t count,
                    Scale scale) const override;
  /// By the calling thread alone: its dot products are over whole vectors.
  void adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
              std::size_t count) const override;

 private:
  /// What all threads do now, each its share of the elements.
  struct Task;

  bool is_worth_sharing(std::size_t bytes) const { return shares_ > 1 && bytes >= kLeastBytes; }
  /// Shares the task out, or does it alone if the others are at another's.
  void run(const Task& task) const;
  static void do_share(const Device& inner, const Task& task, std::size_t share,
                       std::size_t shares);
  void work(std::size_t share);
  bool is_due(std::uint64_t done) const;

  const Device& inner_;
  const std::size_t shares_;
  mutable std::mutex in_use_;  ///< by the thread whose task it is
  mutable std::mutex mutex_;   ///< of the condition alone
  mutable std::condition_variable condition_;
  mutable const Task* task_ = nullptr;
  mutable std::atomic<std::uint64_t> number_ = 0;  ///< of the task
  mutable std::atomic<std::size_t> at_work_ = 0;   ///< threads that have not done their share
  mutable std::atomic<int> asleep_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kolo
