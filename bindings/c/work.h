// kolo_work: C's handle on an operation or on the members of a group. Private to bindings/c.
#pragma once

#include <kolo/kolo.h>
#include <kolo/kolo_c.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace kolo {

/// Host memory that an operation allocates for its output. The operation and the handle share it.
class WorkOutput {
 public:
  /// Serves as an Allocator; called once. Throws std::bad_alloc.
  void* allocate(const Shape& shape, DataType type);

  void* memory() const { return memory_.get(); }
  std::int64_t rows() const { return rows_; }

 private:
  struct Free {
    void operator()(void* memory) const noexcept;
  };
  std::unique_ptr<void, Free> memory_;
  std::int64_t rows_ = 0;
};

}  // namespace kolo

// NOLINTNEXTLINE(readability-identifier-naming): the name that kolo_c.h declares
struct kolo_work {
  std::vector<std::shared_ptr<kolo::Work>> parts;
  std::optional<kolo::CudaStream> stream = {};
  std::shared_ptr<kolo::WorkOutput> output = {};  ///< null: the output is the caller's memory

  /// Waits for all parts; throws the error of the first part that failed.
  void wait() const;
  /// The only part. Throws kInvalidArgument, naming `call`, if this is a group or is not done;
  /// throws the operation's error if the operation failed.
  const kolo::Work& succeeded(const char* call) const;
};

namespace kolo {

/// Gives the started work to `out`, or waits for the work here if `out` is null.
void give_work(kolo_work started, kolo_work** out);

}  // namespace kolo
