// ThreadedDevice: a Device that divides large sums and copies among threads. For hosts with more
// cores than ranks: one core moves less than a fast network card does. KOLO_REDUCE_THREADS is the
// number of threads. Every element is computed as by the inner device, so results do not depend on
// this number.
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
  /// With fewer bytes, synchronising the threads costs more than it gains.
  static constexpr std::size_t kLeastBytes = 256 << 10;

  /// `inner` outlives the object. `threads` includes the calling thread; 1 starts none.
  ThreadedDevice(const Device& inner, int threads);
  ~ThreadedDevice() override;

  /// The device to call: this one, or `inner` if there are no threads.
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
  /// Runs on the calling thread only: the dot products need whole vectors.
  void adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
              std::size_t count) const override;

 private:
  /// The current task; each thread does its share of the elements.
  struct Task;

  bool is_worth_sharing(std::size_t bytes) const { return shares_ > 1 && bytes >= kLeastBytes; }
  /// Divides the task among the threads, or does it alone if they work for another caller.
  void run(const Task& task) const;
  static void do_share(const Device& inner, const Task& task, std::size_t share,
                       std::size_t shares);
  void work(std::size_t share);
  bool is_due(std::uint64_t done) const;

  const Device& inner_;
  const std::size_t shares_;
  mutable std::mutex in_use_;  ///< held by the thread whose task runs
  mutable std::mutex mutex_;   ///< for the condition only
  mutable std::condition_variable condition_;
  mutable const Task* task_ = nullptr;
  mutable std::atomic<std::uint64_t> number_ = 0;  ///< number of the current task
  mutable std::atomic<std::size_t> at_work_ = 0;   ///< threads that have not finished their share
  mutable std::atomic<int> asleep_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kolo
