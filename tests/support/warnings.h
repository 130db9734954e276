// LibTorch's warnings, for tests of kolo::torch; used on the thread that creates the object.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace kolo::test {

/// Keeps LibTorch's warnings, including those that LibTorch prints only once.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { all.push_back(warning.msg()); }

  std::vector<std::string> all;

 private:
  c10::WarningUtils::WarningHandlerGuard handler_{this};
  c10::WarningUtils::WarnAlways always_;
};

}  // namespace kolo::test
