#include "tests/bindings/c10d/stress/place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <complex>

namespace kolo::test {
namespace {

constexpr int kPattern = 0xA5;
constexpr std::int64_t kGuard = 8;  // elements

torch::Tensor reversed(const torch::Tensor& tensor) {
  Sizes order;
  for (std::int64_t dim = tensor.dim(); dim-- > 0;) order.push_back(dim);
  return tensor.permute(order);
}

std::string text_of(const torch::Tensor& value) {
  if (!value.is_complex()) return fmt::format("{}", value.item<double>());
  const auto number = value.item<c10::complex<double>>();
  return fmt::format("{}+{}i", number.real(), number.imag());
}

}  // namespace

Place::View Place::draw_view(const Part& part, bool any_layout, Dice& dice, torch::ScalarType& type,
                             std::int64_t& elements) {
  const Sizes sizes = part.sizes;
  const std::int64_t count = part.count();
  const std::int64_t first = kGuard + dice.below(4);
  type = part.type;
  elements = count + first + kGuard;
  const auto whole = [=](const torch::Tensor& block) { return block.narrow(0, first, count); };
  const std::int64_t way = any_layout ? dice.below(8) : 0;
  if (way == 1) {
    Sizes back(sizes.rbegin(), sizes.rend());
    return [=](const torch::Tensor& block) { return reversed(whole(block).view(back)); };
  }
  if (way == 2 && sizes.size() == 4) {
    const Sizes last{sizes[0], sizes[2], sizes[3], sizes[1]};
    return [=](const torch::Tensor& block) {
      return whole(block).view(last).permute({0, 3, 1, 2});
    };
  }
  if (way == 3) {
    elements = 2 * count + first + kGuard;
    return [=](const torch::Tensor& block) {
      return block.narrow(0, first, 2 * count).slice(0, 0, std::nullopt, 2).view(sizes);
    };
  }
  if (way == 4 && torch::isComplexType(type))
    return [=](const torch::Tensor& block) { return whole(block).view(sizes).conj(); };
  if (way == 5 && (type == torch::kFloat32 || type == torch::kFloat64)) {
    // A tensor with the negative bit, which LibTorch resolves only when it is read.
    type = type == torch::kFloat32 ? torch::kComplexFloat : torch::kComplexDouble;
    return [=](const torch::Tensor& block) { return torch::imag(whole(block).view(sizes).conj()); };
  }
  return [=](const torch::Tensor& block) { return whole(block).view(sizes); };
}

Place::Place(const Part& part, bool any_layout, Dice& dice) {
  torch::ScalarType type = part.type;
  std::int64_t elements = 0;
  view_ = draw_view(part, any_layout, dice, type, elements);
  block_ = torch::empty({elements}, type);
  block_.view(torch::kUInt8).fill_(kPattern);
  tensor_ = view_(block_);
  tensor_.zero_();
  const bool has_gradient = torch::isFloatingType(part.type) || torch::isComplexType(part.type);
  if (any_layout && has_gradient && dice.one_in(4)) tensor_ = tensor_.detach().requires_grad_();
}

void Place::fill(const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  tensor_.detach().copy_(values.view(tensor_.sizes()));
}

std::string Place::wrong(const torch::Tensor& values) const {
  const torch::NoGradGuard no_grad;
  const auto found = tensor_.detach().to(values.scalar_type()).reshape({-1});
  if (found.numel() != values.numel())
    return fmt::format("has {} elements instead of {}", found.numel(), values.numel());
  const auto differ = found.ne(values);
  const auto off = differ.sum().item<std::int64_t>();
  if (off == 0) return {};
  const auto at = differ.to(torch::kInt).argmax().item<std::int64_t>();
  return fmt::format(
      "element {} of sizes [{}] and strides [{}] is {} instead of {}; {} of {} differ", at,
      fmt::join(tensor_.sizes(), ","), fmt::join(tensor_.strides(), ","), text_of(found[at]),
      text_of(values[at]), off, values.numel());
}

std::string Place::damage() const {
  const torch::NoGradGuard no_grad;
  // Compare as bytes: a copy of bools turns all nonzero bytes into 1.
  const auto now = block_.view(torch::kUInt8).clone();
  const auto pattern = torch::full_like(now, kPattern);
  for (const torch::Tensor& bytes : {now, pattern}) view_(bytes.view(block_.scalar_type())).zero_();
  return torch::equal(now, pattern) ? "" : "memory around it was written";
}

}  // namespace kolo::test
