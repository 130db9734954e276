// Output: what a rank writes, line by line, with its rank before each line or into a file of its
// own. Used by kolo-run's main thread.
#pragma once

#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <string>
#include <string_view>

namespace kolo::run {

class Output {
 public:
  /// Lines go to `fd`, each behind `tag`.
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
