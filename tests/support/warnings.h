// What LibTorch warns of. For tests of kolo::torch; the thread that makes one.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace kolo::test {

/// Keeps what LibTorch warns of, once or not.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { all.push_back(warning.msg()); }

  std::vector<std::string> all;

 private:
  c10::WarningUtils::WarningHandlerGuard handler_{this};
  c10::WarningUtils::WarnAlways always_;
};

}  // namespace kolo::test
