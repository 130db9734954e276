// Coordinator: rank 0's half of the negotiation. It collects which rank is ready for which tensor
// and turns a tensor that all are ready for into a Response, the same for everybody, in the order
// in which they became complete. Pure bookkeeping, no I/O; token holder only.
#pragma once

#include "runtime/negotiation/wire.h"

#include <chrono>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kolo {

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Coordinator(int size) : size_(size) {}

  /// `rank` is ready. kInternal if it said so already.
  Status ready(int rank, const std::string& name, const Signature& signature, bool absent,
               Clock::time_point now);

  bool has_decisions() const { return !decided_.empty(); }
  std::uint64_t decided_bytes() const { return decided_bytes_; }
  /// The responses that are due, in order. A tensor on which ranks disagree fails with kMismatch.
  std::vector<Response> take_decisions();

  /// Decides kTimeout for every tensor that some ranks have lacked for longer than `timeout`.
  void expire(Clock::time_point now, Clock::duration timeout);

  /// A line for each tensor that waits for longer than `age` and has not been reported yet: its
  /// name, who is ready and who is missing.
  std::vector<std::string> stalled(Clock::time_point now, Clock::duration age);

  std::size_t pending() const { return pending_.size(); }

 private:
  struct Variant {
    Signature signature;
    std::vector<int> ranks;
  };
  struct Pending {
    std::vector<Variant> variants;  ///< more than one: the ranks disagree
    std::vector<bool> is_ready;     ///< by rank
    int ready_count = 0;
    int contributors = 0;
    Clock::time_point since;
    bool reported = false;
  };

  void decide(const std::string& name, const Pending& pending);
  std::string who_is_missing(const Pending& pending) const;

  const int size_;
  std::unordered_map<std::string, Pending> pending_;
  std::vector<Response> decided_;
  std::uint64_t decided_bytes_ = 0;
};

}  // namespace kolo
