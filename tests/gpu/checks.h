// Shared by the checks of tensor_check. Every check runs on all ranks at once.
#pragma once

#include <fmt/format.h>
#include <kolo/torch.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace kolo::gpu {

struct Check {
  const char* name;
  void (*run)(torch::Device device);  ///< throws with the unexpected result
};

/// Checks of collectives, layouts and streams are in tensor_check.cc and stream_checks.cc, those of
/// training in training_checks.cc.
std::vector<Check> stream_checks();
std::vector<Check> training_checks();

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Compares two tensors on the CPU, element by element.
inline void expect_close(const torch::Tensor& seen, const torch::Tensor& wanted, double tolerance,
                         const std::string& what) {
  const torch::Tensor a = seen.detach().cpu();
  const torch::Tensor b = wanted.detach().cpu();
  expect(a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type(), what + ": shape or type");
  const bool close = tolerance == 0 ? a.equal(b) : torch::allclose(a, b, tolerance, tolerance);
  expect(close, fmt::format("{}: values differ from the host's", what));
}

/// The message that `call` throws; empty if it throws nothing.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace kolo::gpu
