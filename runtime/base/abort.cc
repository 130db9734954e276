#include "runtime/base/abort.h"

namespace kolo {

bool Abort::raise(Error error, int culprit) {
  const std::lock_guard lock(mutex_);
  if (error_) return false;
  error_ = std::move(error);
  culprit_ = culprit;
  raised_.store(true, std::memory_order_release);
  return true;
}

const Error& Abort::error() const {
  KOLO_CHECK(raised());
  return *error_;  // written once, before raised() became true
}

int Abort::culprit() const {
  KOLO_CHECK(raised());
  return culprit_;
}

}  // namespace kolo
