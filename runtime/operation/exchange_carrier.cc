#include "runtime/operation/exchange_carrier.h"

namespace kolo {

Status ExchangeCarrier::start(const Route&, const PlannedOperation& plan) {
  take(*exchange_of(plan, group_.communicator), State::kWaiting);
  return {};
}

bool ExchangeCarrier::resume_two_rank(const PlannedOperation& plan) {
  const auto request = exchange_of(plan, group_.communicator);
  if (!request || !group_.exchange.adopt_two_rank(*request)) return false;
  take(*request, State::kRunning);
  return true;
}

void ExchangeCarrier::take(const Exchange::Request& request, State state) {
  request_ = request;
  state_ = state;
  declined_ = false;
  status_ = {};
}

bool ExchangeCarrier::advance() {
  Exchange& exchange = group_.exchange;
  switch (state_) {
    case State::kWaiting:
      if (!exchange.adopt()) {
        if (exchange.busy()) return false;
        if (!exchange.tries(request_)) {
          end(/*declined=*/true);
          return true;
        }
        exchange.begin(request_);
      }
      state_ = State::kRunning;
      return true;
    case State::kRunning:
      if (!exchange.advance()) return false;
      end(exchange.declined());
      status_ = exchange.status();
      return true;
    case State::kDone:
      break;
  }
  return false;
}

void ExchangeCarrier::end(bool declined) {
  state_ = State::kDone;
  declined_ = declined;
  algorithm_ = group_.exchange.algorithm();
}

std::string_view ExchangeCarrier::algorithm() const {
  switch (state_) {
    case State::kWaiting:
      return group_.exchange.algorithm(request_);
    case State::kRunning:
      return group_.exchange.algorithm();
    case State::kDone:
      break;
  }
  return algorithm_;
}

std::string ExchangeCarrier::describe() const {
  return state_ == State::kWaiting ? "waits for another exchange over the control segments"
                                   : group_.exchange.describe();
}

}  // namespace kolo
