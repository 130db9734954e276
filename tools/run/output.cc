#include "tools/run/output.h"

namespace kolo::run {
namespace {

// A longer line is written in pieces, each as a line.
constexpr std::size_t kLongestLine = 65536;

}  // namespace

void Output::write(std::string_view bytes) {
  if (bytes.empty()) return;
  if (tag_.empty()) return sink_->add(bytes);
  if (is_returned_ && bytes.front() == '\n') {
    sink_->add("\n");
    bytes.remove_prefix(1);
  }
  is_returned_ = false;
  std::string whole;
  // Progress bars end their lines with \r alone.
  for (auto end = bytes.find_first_of("\r\n"); end != bytes.npos;
       end = bytes.find_first_of("\r\n")) {
    auto next = end + 1;
    if (bytes[end] == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
    whole += tag_ + line_;
    whole += bytes.substr(0, next);
    line_.clear();
    is_returned_ = bytes[next - 1] == '\r' && next == bytes.size();
    bytes.remove_prefix(next);
  }
  line_ += bytes;
  if (line_.size() >= kLongestLine) {
    whole += tag_ + line_ + "\n";
    line_.clear();
  }
  sink_->add(whole);
}

void Output::finish() {
  if (!line_.empty()) write("\n");
}

}  // namespace kolo::run
