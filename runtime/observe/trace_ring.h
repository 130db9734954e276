// TraceRing: trace records with their texts on the way from one thread to another, in a ring of
// fixed size. push() by the progress token's holder (one at a time), drain() by the writer thread.
// Neither waits: a record that does not fit is dropped and counted.
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
  /// Bytes; a power of two.
  explicit TraceRing(std::size_t capacity);

  /// Producer. Text longer than kMaxText is cut there.
  void push(const TraceRecord& record, std::string_view text);

  /// Consumer: use(record, text) for everything that is there, oldest first; returns how many.
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

  /// Any thread: records that found the ring full.
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
  // Positions only grow; each side writes its own line.
  alignas(64) std::atomic<std::uint64_t> written_ = 0;
  std::uint64_t read_seen_ = 0;  ///< producer's: read_ when it was last looked at
  std::atomic<std::uint64_t> dropped_ = 0;
  alignas(64) std::atomic<std::uint64_t> read_ = 0;
  TraceRecord record_;  ///< consumer's
  std::string text_;    ///< consumer's
};

}  // namespace kolo
