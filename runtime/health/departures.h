// Departures: which ranks have shut down, and how far each had come. A rank that left after its
// part of everything does no harm; a rank that is still needed does. Token holder only.
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

/// How far a rank has come. Its shutdown notice carries this, with separate values for each
/// receiver.
struct Progress {
  std::uint64_t agreements = 0;  ///< lists of responses that the rank has taken
  /// By mode: the rank has done every operation with a lower number.
  std::array<std::uint64_t, kSubmissionModeCount> operations = {};
  std::uint64_t messages_cut = 0;  ///< messages to and from the receiver that may be cut off
  /// Bit i: ordered call (operations − 1 − i) failed at once, so the rank took no part in it.
  std::uint64_t refused = 0;

  /// Whether the rank had done its part of operation `sequence`.
  bool has_done(SubmissionMode mode, std::uint64_t sequence) const;
  /// Whether the call with this number failed at once, so that the rank did not do its part.
  bool has_refused(SubmissionMode mode, std::uint64_t sequence) const;
};

class Departures {
 public:
  explicit Departures(int size) : gone_(static_cast<std::size_t>(size)) {}

  static std::string encode(const Progress& progress);
  /// False on bytes that encode() did not make.
  bool add(int rank, std::span<const std::byte> notice);
  /// The rank left before it had done anything.
  void add_absent(int rank);

  bool any() const { return count_ > 0; }
  bool contains(int rank) const { return gone_[static_cast<std::size_t>(rank)].has_value(); }

  /// How far a rank that has left had come; nothing for a rank that is still there.
  const std::optional<Progress>& progress_of(int rank) const {
    return gone_[static_cast<std::size_t>(rank)];
  }

  /// Whether a rank left while messages between it and this one were under way.
  bool cut_messages(int rank) const {
    const auto& progress = gone_[static_cast<std::size_t>(rank)];
    return progress && progress->messages_cut > 0;
  }

  /// The first rank that left before its part of operation `sequence`.
  std::optional<int> missing_in(SubmissionMode mode, std::uint64_t sequence) const;
  /// Whether a rank has left, and this rank has seen its every agreement. What is not agreed on by
  /// then and needs that rank never will be.
  bool is_missing_in_negotiation(int rank, std::uint64_t agreements) const;

 private:
  void set(int rank, const Progress& progress);

  std::vector<std::optional<Progress>> gone_;
  int count_ = 0;
};

}  // namespace kolo
