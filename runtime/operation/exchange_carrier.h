// ExchangeCarrier: takes an in-order call through its process set's Exchange, in turn with the
// other calls there (CarrierKind::kExchange). A caller may have begun the call in its own thread
// and left it to this carrier. Token holder only.
#pragma once

#include "runtime/operation/carrier.h"
#include "runtime/operation/services.h"

namespace kolo {

class ExchangeCarrier final : public Carrier {
 public:
  explicit ExchangeCarrier(const GroupServices& group) : group_(group) {}

  Status start(const Route& route, const PlannedOperation& plan) override;
  /// Takes over a two-rank exchange that its caller has begun and left, if it is this call.
  bool resume_two_rank(const PlannedOperation& plan);
  /// On all ranks, the exchange has left the call to a schedule. Precondition: done().
  bool declined() const { return declined_; }

  bool advance() override;
  bool done() const override { return state_ == State::kDone; }
  const Status& status() const override { return status_; }
  void release() override { state_ = State::kDone; }
  std::string_view algorithm() const override;
  std::string describe() const override;

 private:
  /// start() → kWaiting → kRunning, when it is this call's turn → kDone; resume_two_rank() →
  /// kRunning.
  enum class State : std::uint8_t { kWaiting, kRunning, kDone };

  void take(const Exchange::Request& request, State state);
  void end(bool declined);

  const GroupServices& group_;
  Exchange::Request request_;
  State state_ = State::kDone;
  bool declined_ = false;
  std::string_view algorithm_;  ///< algorithm of this call; the exchange goes on with other calls
  Status status_;
};

}  // namespace kolo
