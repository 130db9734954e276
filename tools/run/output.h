// Output: a rank's output on its way to a sink, either line by line with a tag before each line, or
// as it is. Used by kolo-run's main thread.
#pragma once

#include "tools/run/sink.h"

#include <memory>
#include <string>
#include <string_view>

namespace kolo::run {

class Output {
 public:
  /// With a `tag`, lines go to the sink, each after the tag; without a tag, bytes go as they are.
  Output(std::shared_ptr<Sink> sink, std::string tag)
      : sink_(std::move(sink)), tag_(std::move(tag)) {}

  void write(std::string_view bytes);
  /// Completes a last line that has no end.
  void finish();
  Sink& sink() const { return *sink_; }

 private:
  std::shared_ptr<Sink> sink_;
  std::string tag_;
  std::string line_ = {};
  bool is_returned_ = false;  ///< the last line ended with \r, and \n may follow
};

}  // namespace kolo::run
