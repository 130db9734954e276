// Failures of one rank that all ranks are to know of, and of several actions.
#pragma once

#include <kolo/kolo.h>
#include <kolo/torch/objects.h>

#include <exception>
#include <string>
#include <utility>

namespace kolo {

/// The first of what several actions throw.
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
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

/// Why `call` fails, in one line, or nothing.
template <class Call>
std::string failure_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& exception) {
    return reason_of(exception);
  }
  return "";
}

/// What a user's code throws here alone, perhaps, ends on all ranks, which must not wait for this
/// one; kolo's own errors every rank gets, or its operation has failed everywhere. `what` says what
/// has failed.
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

/// For what all ranks do in each step under the same names. Who has waited for too long gives a
/// part of this one up and goes on with the next, which those that come late would take for it: so
/// communication ends.
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
