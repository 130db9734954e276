// Failures: the failure that the next pass of the cycle ends everything with. The first one noted
// counts, with two exceptions: a failure heard from another rank replaces it, and the loss of a
// rank replaces what failed over the link to that rank. Token holder only.
#pragma once

#include "runtime/base/abort.h"

#include <kolo/error.h>

#include <optional>
#include <utility>

namespace kolo {

/// How a rank was lost.
enum class Loss {
  kUnknown,  ///< as when its connection broke
  kEnded,    ///< its process, on this host, has ended: what it has sent is here
  kSilent,   ///< nothing is heard of it
};

struct Failure {
  Error error;
  int culprit = Abort::kNoCulprit;
  bool heard = false;  ///< another rank reported it
  Loss loss = Loss::kUnknown;

  /// Whether the culprit is lost for this rank, but may go on and wait for the others.
  bool culprit_may_live() const {
    return error.code == ErrorCode::kPeerLost && culprit != Abort::kNoCulprit &&
           (heard || loss == Loss::kSilent);
  }
};

class Failures {
 public:
  void note(Status status) {
    if (!status.ok()) note(Failure{std::move(status).error()});
  }
  /// Notes a failure of a stage; whether anything moved.
  bool take_moved(const Result<bool>& moved) {
    if (!moved.ok()) note(Failure{moved.error()});
    return moved.ok() && *moved;
  }
  void note(Failure failure) {
    if (!first_ || (is_broken_link(*first_) && failure.culprit != Abort::kNoCulprit))
      first_ = std::move(failure);
  }
  /// The sender failed first, so a failure noted here is likely its consequence.
  void hear(Failure failure) { first_ = std::move(failure); }

  bool any() const { return first_.has_value(); }
  /// Precondition: any().
  const Failure& first() const { return *first_; }
  Failure take() { return *std::exchange(first_, std::nullopt); }

 private:
  static bool is_broken_link(const Failure& failure) {
    return failure.error.code == ErrorCode::kPeerLost && failure.culprit == Abort::kNoCulprit &&
           !failure.heard;
  }

  std::optional<Failure> first_;
};

}  // namespace kolo
