// Output: what a rank writes: line by line with its rank before each line, as it is, or into a file
// of its own. Used by kolo-run's main thread.
#pragma once

#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <string>
#include <string_view>

namespace kolo::run {

/// All of it, even where `fd` does not block; what cannot be written is lost: nobody listens any
/// more.
void write_all(int fd, std::string_view bytes);

class Output {
 public:
  /// Lines go to `fd`, each behind `tag`; without a tag, bytes as they are.
  Output(int fd, std::string tag) : fd_(fd), tag_(std::move(tag)) {}
  /// Bytes go to the file as they are. kInvalidArgument if it cannot be written.
  static Result<Output> to_file(const std::string& path);

  void write(std::string_view bytes);
  /// Completes a last line that has no end.
  void finish();

 private:
  Output(UniqueDescriptor file) : fd_(file.get()), file_(std::move(file)) {}

  int fd_;
  UniqueDescriptor file_ = {};
  std::string tag_ = {};
  std::string line_ = {};
};

}  // namespace kolo::run
