// Failures of one rank that all ranks must learn of, and failures of several actions.
#pragma once

#include <kolo/kolo.h>
#include <kolo/torch/objects.h>

#include <exception>
#include <string>
#include <utility>

namespace kolo {

/// Keeps the first exception that several actions throw.
class FirstFailure {
 public:
  template <class Action>
  void attempt(Action&& action) {
    try {
      std::forward<Action>(action)();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  bool has_failed() const { return first_ != nullptr; }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

/// Why `call` fails, in one line; empty if it succeeds.
template <class Call>
std::string failure_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& exception) {
    return reason_of(exception);
  }
  return "";
}

/// Aborts communication if `call` throws an exception of user code, which this rank alone may see;
/// otherwise other ranks would wait. kolo's own errors reach every rank, or the operation has
/// failed everywhere, so they only propagate. `what` describes the failed action.
template <class Call, class What>
void abort_on_failure(Call&& call, What&& what) {
  try {
    call();
  } catch (const Exception&) {
    throw;
  } catch (const std::exception& error) {
    abort(what() + ": " + error.what());
    throw;
  }
}

/// For actions that all ranks repeat in each step under the same names. A rank that times out drops
/// part of this step and goes on. Late ranks would take its next step for this one, so a timeout
/// aborts communication.
template <class Call>
void abort_on_timeout(Call&& call, const std::string& what) {
  try {
    call();
  } catch (const Exception& error) {
    if (error.code() == ErrorCode::kTimeout) abort(what + ": " + error.what());
    throw;
  }
}

}  // namespace kolo
