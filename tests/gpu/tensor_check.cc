// tensor_check: compares kolo's functions and training on CUDA tensors with those on host tensors.
// Started by tools/gpu_check and CTest; alone or by kolo-run -np N, whose ranks may share a GPU.
// Exit status: 0, 1 (a check failed), 77 (no GPU). Main thread.
#include "tests/gpu/checks.h"

#include <cstdio>

namespace kolo::gpu {
namespace {

constexpr int kNoGpu = 77;

torch::Tensor values(torch::ScalarType type, torch::IntArrayRef shape) {
  torch::manual_seed(31 + static_cast<std::uint64_t>(rank()));
  if (c10::isIntegralType(type, /*includeBool=*/true)) {
    return torch::randint(0, type == torch::kBool ? 2 : 5, shape, torch::kInt64).to(type);
  }
  return torch::randn(shape, torch::kFloat64).to(type);
}

double tolerance_of(torch::ScalarType type) {
  if (c10::isIntegralType(type, true)) return 0;
  if (type == torch::kFloat16) return 2e-3;
  if (type == torch::kBFloat16) return 2e-2;
  return 1e-5;
}

void every_type(torch::Device device) {
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16,
                          torch::kInt64, torch::kInt32, torch::kInt16, torch::kInt8, torch::kUInt8,
                          torch::kBool, torch::kComplexFloat, torch::kComplexDouble}) {
    for (const auto op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                          ReduceOp::kProduct, ReduceOp::kAdasum}) {
      const torch::Tensor host = values(type, {257, 33});
      torch::Tensor wanted;
      const std::string refused = error_of([&] { wanted = allreduce(host, {.op = op}); });
      torch::Tensor seen;
      const std::string error = error_of([&] { seen = allreduce(host.to(device), {.op = op}); });
      const auto what = fmt::format("{} of {}", to_string(op), torch::toString(type));
      expect(refused.empty() == error.empty(), what + ": " + (error.empty() ? refused : error));
      if (!error.empty()) continue;
      expect(seen.device() == device, what + ": the result is on " + seen.device().str());
      expect_close(seen, wanted, tolerance_of(type), what);
    }
  }
}

void layouts(torch::Device device) {
  const torch::Tensor host = values(torch::kFloat32, {4, 6, 5, 7});
  const torch::Tensor wanted = allreduce(host);
  torch::Tensor turned = host.to(device).permute({3, 0, 2, 1});
  expect_close(allreduce(turned), wanted.permute({3, 0, 2, 1}), 1e-5, "a permuted tensor");
  allreduce_(turned);
  expect_close(turned, wanted.permute({3, 0, 2, 1}), 1e-5, "a permuted tensor, in place");
  const auto last = host.to(device).contiguous(torch::MemoryFormat::ChannelsLast);
  expect_close(allreduce(last), wanted, 1e-5, "channels last");
  expect_close(allreduce(torch::zeros({0, 3}, device)), torch::zeros({0, 3}), 0, "no elements");
  const std::vector<torch::Tensor> group = {host.to(device),
                                            values(torch::kFloat32, {3}).to(device)};
  expect_close(grouped_allreduce(group, {.name = "group"})[0], wanted, 1e-5, "a group");
}

void rows(torch::Device device) {
  const torch::Tensor host = values(torch::kFloat32, {3 + rank(), 1000});
  const torch::Tensor mine = host.to(device);
  expect_close(allgather(mine), allgather(host), 0, "allgather");
  expect_close(gather(mine, 0), gather(host, 0), 0, "gather");
  const torch::Tensor even = values(torch::kFloat32, {size() * 3, 500});
  expect_close(alltoall(even.to(device)).output, alltoall(even).output, 0, "alltoall");
  expect_close(reducescatter(even.to(device)), reducescatter(even), 1e-5, "reducescatter");
  expect_close(scatter(even.to(device), 0), scatter(even, 0), 0, "scatter");
  expect_close(broadcast(even.to(device), size() - 1), broadcast(even, size() - 1), 0, "broadcast");
  const torch::Tensor sparse = torch::eye(6).to_sparse();
  expect_close(sparse_allreduce(sparse.to(device)).to_dense(), torch::eye(6) * size(), 0, "sparse");
  if (size() < 2 || rank() > 1) return;
  const torch::Tensor sent = torch::full({5000}, 7.0, torch::TensorOptions().device(device));
  if (rank() == 0) {
    send(sent, 1);
  } else {
    expect_close(recv_(torch::zeros_like(sent), 0), sent, 0, "a message");
  }
}

void refusals(torch::Device device) {
  const torch::Tensor near = torch::ones({4}, device);
  const torch::Tensor host = torch::ones({4});
  const std::string mixed = error_of([&] { grouped_allreduce({near, host}, {.name = "mixed"}); });
  expect(mixed.find(device.str()) != std::string::npos && mixed.find("cpu") != std::string::npos,
         "a group on two devices: " + mixed);
  if (torch::cuda::device_count() < 2) return;
  const torch::Device other(torch::kCUDA, device.index() == 0 ? 1 : 0);
  const std::string far = error_of([&] { allreduce(near.to(other), {.name = "far"}); });
  expect(far.find(device.str()) != std::string::npos && far.find(other.str()) != std::string::npos,
         "a tensor on another device: " + far);
}

int run() {
  std::vector<Check> checks = {{"every type and operation", every_type},
                               {"layouts and groups", layouts},
                               {"rows, messages, sparse", rows},
                               {"refusals", refusals}};
  for (const auto& more : {stream_checks(), training_checks()}) {
    checks.insert(checks.end(), more.begin(), more.end());
  }
  const torch::Device device = kolo::device("cuda");
  for (const Check& check : checks) {
    try {
      check.run(device);
      torch::cuda::synchronize(device.index());
    } catch (const std::exception& error) {
      fmt::print(stderr, "tensor_check: rank {}: {}: {}\n", rank(), check.name, error.what());
      return 1;  // the others' operations then fail and name this rank
    }
    if (rank() == 0) fmt::print("ok: {}\n", check.name);
  }
  if (rank() == 0) fmt::print("{} checks on {}, {} rank(s)\n", checks.size(), device.str(), size());
  return 0;
}

}  // namespace
}  // namespace kolo::gpu

int main(int argc, char** argv) {
  kolo::init(argc, argv);
  const std::string reason = kolo::gpu::error_of([] { static_cast<void>(kolo::device("cuda")); });
  if (!reason.empty()) {
    fmt::print("not run: no GPU ({})\n", reason);
    return kolo::gpu::kNoGpu;
  }
  return kolo::gpu::run();
}
