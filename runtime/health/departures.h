// Departures: which ranks have shut down, and how far they had come. A rank that left after doing
// its part of everything does no harm; one that is still needed does. Token holder only.
#pragma once

#include "runtime/communicator/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// How far a rank has come: what a goodbye carries, to each of the others its own.
struct Progress {
  std::uint64_t agreements = 0;                           ///< lists of responses taken
  std::array<std::uint64_t, kDoorCount> operations = {};  ///< by door: every lower number is done
  std::uint64_t messages_cut = 0;  ///< to and from the reader, that may be under way at its end
  /// Bit i: the ordered call i + 1 before the end of those failed at once, so nobody met it there.
  std::uint64_t refused = 0;

  /// Whether it had done its part of operation `sequence`.
  bool has_done(Door door, std::uint64_t sequence) const;
  /// Whether it took the number of an operation whose part it had not done.
  bool has_refused(Door door, std::uint64_t sequence) const;
};

class Departures {
 public:
  explicit Departures(int size) : gone_(static_cast<std::size_t>(size)) {}

  static std::string encode(const Progress& progress);
  /// False on bytes that encode() did not make.
  bool add(int rank, std::span<const std::byte> goodbye);
  /// It left before it had done anything.
  void add_absent(int rank);

  bool any() const { return count_ > 0; }
  bool contains(int rank) const { return gone_[static_cast<std::size_t>(rank)].has_value(); }

  /// How far a rank that has left had come; nothing of one that is there.
  const std::optional<Progress>& progress_of(int rank) const {
    return gone_[static_cast<std::size_t>(rank)];
  }

  /// Whether a rank left while messages between it and this one were under way.
  bool cut_messages(int rank) const {
    const auto& progress = gone_[static_cast<std::size_t>(rank)];
    return progress && progress->messages_cut > 0;
  }

  /// The first rank that left before its part of operation `sequence`.
  std::optional<int> missing_in(Door door, std::uint64_t sequence) const;
  /// The first rank that left, once this rank has seen every agreement that it had seen: what is
  /// not agreed on by then never will be.
  std::optional<int> missing_in_negotiation(std::uint64_t agreements) const;

 private:
  void set(int rank, const Progress& progress);

  std::vector<std::optional<Progress>> gone_;
  int count_ = 0;
};

}  // namespace kolo
