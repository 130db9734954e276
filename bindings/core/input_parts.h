// The tensors that a binding has packed into the input of its operations, so that errors about an
// element can name the tensor (Submission::part_at). For the bindings; any thread.
#pragma once

#include <kolo/export.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace kolo {

/// Reductions that this thread submits until the scope ends have inputs of these parts.
class KOLO_API InputParts {
 public:
  using NameAt = std::function<std::string(std::uint64_t element)>;

  /// `name_at` is called within the submission only.
  explicit InputParts(NameAt name_at);
  ~InputParts();
  InputParts(const InputParts&) = delete;
  InputParts& operator=(const InputParts&) = delete;

  /// Empty outside of a scope.
  static const NameAt& current();

 private:
  const NameAt name_at_;
  const NameAt* const before_;
};

}  // namespace kolo
