// Errors as values. Every layer below the bindings returns Result<T>; the bindings turn a failed
// Result into kolo::Exception. Modelled on absl::StatusOr and torchcomms' uniflow Result. Plain
// values: thread-safe as any value type is.
#pragma once

#include <kolo/export.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kolo {

/// The kind of a failure. Programs may branch on the code; the message is for people.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< the caller passed something that can never work
  kMismatch,         ///< ranks disagree (shape, type, operation, settings, version)
  kTimeout,          ///< a deadline passed; the message says what kolo waited for
  kPeerLost,         ///< another rank exited, crashed or became unreachable
  kTransport,        ///< the transport library reported a failure
  kDevice,           ///< the device or its driver reported a failure
  kOutOfMemory,      ///< host, shared or device memory is exhausted
  kUnsupported,      ///< valid, but not in this build or on this machine
  kAborted,          ///< the communicator was aborted by an earlier failure
  kShutdown,         ///< kolo was shut down, or was never initialised
  kInternal,         ///< a bug in kolo
};

/// "mismatch", "peer lost", … in lower case.
KOLO_API std::string_view to_string(ErrorCode code);

/// One failure: its kind, a sentence for people, and the place in kolo that noticed it.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  const char* file = "";
  int line = 0;
};

/// A value of type T, or the Error that prevented it.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }

  /// Precondition: ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

  /// Precondition: !ok().
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  std::optional<T> value_;
  Error error_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }

  /// Precondition: !ok().
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace kolo
