#include "examples/mnist/evaluation.h"

#include <kolo/torch.h>

#include <algorithm>
#include <cstring>

namespace mnist {
namespace {

constexpr std::size_t kBatch = 250;

/// All ranks' values, by rank: a sum over vectors in which each rank fills only its own element.
std::vector<std::int64_t> gather(std::int64_t value) {
  torch::Tensor slots = torch::zeros({kolo::size()}, torch::kInt64);
  slots[kolo::rank()] = value;
  kolo::allreduce_(slots);
  const auto* const first = slots.data_ptr<std::int64_t>();
  return {first, first + slots.numel()};
}

/// FNV-1a on 64 bits.
void hash_into(std::uint64_t& hash, const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.detach().cpu().contiguous();
  const auto* const bytes = static_cast<const std::uint8_t*>(values.data_ptr());
  for (std::size_t i = 0; i < values.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3U;
}

}  // namespace

Score evaluate(Network& network, const Digits& digits, torch::Device device) {
  const torch::NoGradGuard no_grad;
  network->eval();
  std::vector<std::int64_t> share;
  for (auto i = static_cast<std::size_t>(kolo::rank()); i < digits.count();
       i += static_cast<std::size_t>(kolo::size())) {
    share.push_back(static_cast<std::int64_t>(i));
  }
  double loss = 0;
  std::int64_t right = 0;
  for (std::size_t at = 0; at < share.size(); at += kBatch) {
    const auto begin = share.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(kBatch, share.size() - at));
    const auto batch = batch_of(digits, {begin, end});
    const torch::Tensor target = batch.target.to(device);
    const torch::Tensor output = network->forward(batch.data.to(device));
    loss += torch::nll_loss(output, target, {}, at::Reduction::Sum).item<double>();
    right += output.argmax(1).eq(target).sum().item<std::int64_t>();
  }
  network->train();
  const torch::Tensor sums = kolo::allreduce(torch::tensor(
      {loss, static_cast<double>(right), static_cast<double>(share.size())}, torch::kFloat64));
  const auto* const sum = sums.data_ptr<double>();
  return {sum[0] / sum[2], sum[1] / sum[2], static_cast<std::int64_t>(sum[2])};
}

std::vector<std::uint64_t> parameter_hashes(const torch::nn::Module& module) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const auto& parameter : module.parameters()) hash_into(hash, parameter);
  for (const auto& buffer : module.buffers()) hash_into(hash, buffer);
  std::vector<std::uint64_t> hashes;
  for (const std::int64_t value : gather(static_cast<std::int64_t>(hash))) {
    hashes.push_back(static_cast<std::uint64_t>(value));
  }
  return hashes;
}

}  // namespace mnist
