// kolo_work: what C holds of an operation, or of the members of a group. Private to bindings/c.
#pragma once

#include <kolo/kolo.h>
#include <kolo/kolo_c.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace kolo {

/// Host memory that an operation allocates for itself; the operation and the handle share it.
class WorkOutput {
 public:
  /// As an Allocator: called once. Throws std::bad_alloc.
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
  std::shared_ptr<kolo::WorkOutput> output = {};  ///< null: none of kolo's

  /// Waits for all parts; throws what the first failed with that did.
  void wait() const;
  /// Its only part. Throws kInvalidArgument, naming `call`, if it is a group or is not done, and
  /// what it failed with.
  const kolo::Work& succeeded(const char* call) const;
};

namespace kolo {

/// With `out`, gives the started work to it; without, waits for it here.
void hand_out(kolo_work started, kolo_work** out);

}  // namespace kolo
