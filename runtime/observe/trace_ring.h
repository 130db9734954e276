// TraceRing: a ring of fixed size that carries trace records and their texts between two threads.
// The holder of the progress token calls push() (one thread at a time), the writer thread calls
// drain(). Neither waits: a record that does not fit is dropped and counted.
#pragma once

#include "runtime/observe/trace_record.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kolo {

class TraceRing {
 public:
  /// `capacity`: bytes, a power of two.
  explicit TraceRing(std::size_t capacity);

  /// Producer. A text longer than kMaxText bytes is cut off.
  void push(const TraceRecord& record, std::string_view text);

  /// Consumer. Calls use(record, text) for every record in the ring, oldest first; returns how
  /// many.
  template <class Use>
  std::size_t drain(Use&& use) {
    const std::uint64_t end = written_.load(std::memory_order_acquire);
    std::size_t count = 0;
    for (std::uint64_t at = read_.load(std::memory_order_relaxed); at != end; ++count) {
      at = take(at);
      use(record_, std::string_view(text_));
      read_.store(at, std::memory_order_release);
    }
    return count;
  }

  /// Any thread. Records dropped because the ring was full.
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  static constexpr std::size_t kMaxText = 4096;

 private:
  struct Header {
    TraceRecord record;
    std::uint32_t text_bytes;
  };

  std::uint64_t take(std::uint64_t at);
  void copy_in(std::uint64_t at, const void* from, std::size_t bytes);
  void copy_out(std::uint64_t at, void* to, std::size_t bytes) const;

  const std::size_t capacity_;
  const std::unique_ptr<std::byte[]> bytes_;
  // Positions only grow. Producer and consumer write to different cache lines.
  alignas(64) std::atomic<std::uint64_t> written_ = 0;
  std::uint64_t read_seen_ = 0;  ///< producer's latest look at read_
  std::atomic<std::uint64_t> dropped_ = 0;
  alignas(64) std::atomic<std::uint64_t> read_ = 0;
  TraceRecord record_;  ///< consumer's record
  std::string text_;    ///< consumer's text
};

}  // namespace kolo
