// EndsByCtrlC: while the ranks of a world meet, Ctrl-C ends the process, as it ends a program in
// C++. Python itself would raise KeyboardInterrupt only once the call has ended.
#pragma once

#include <csignal>

namespace kolo::python {

/// Does nothing on other threads than Python's main one, which sees to Ctrl-C itself, and nothing
/// where the program has a handler of its own. Made with the interpreter's lock.
class EndsByCtrlC {
 public:
  EndsByCtrlC();
  ~EndsByCtrlC();
  EndsByCtrlC(const EndsByCtrlC&) = delete;
  EndsByCtrlC& operator=(const EndsByCtrlC&) = delete;

 private:
  struct sigaction before_ = {};
  bool is_set_ = false;
};

}  // namespace kolo::python
