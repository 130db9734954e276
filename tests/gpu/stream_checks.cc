// Streams: an operation starts after the work that the current stream got before the call. A stream
// that waits for the operation continues after it. The host runs ahead of both. Each check keeps a
// stream busy for much longer than kolo's work, so that a missing order shows as a wrong number.
#include "tests/gpu/checks.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

namespace kolo::gpu {
namespace {

c10::Stream new_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
}

/// Some milliseconds of work on the current stream, whose result is 0.
torch::Tensor slow_zero(torch::Device device) {
  const torch::Tensor matrix = torch::zeros({4096, 4096}, device);
  torch::Tensor product = matrix;
  for (int i = 0; i < 10; ++i) product = torch::mm(product, matrix);
  return product[0][0];
}

double sum_of_ranks() { return size() * (size() + 1) / 2.0; }

void producer_and_consumer(torch::Device device) {
  const c10::Stream producer = new_stream(device);
  const c10::Stream consumer = new_stream(device);
  for (int round = 0; round < 10; ++round) {
    torch::Tensor input = torch::full({1 << 20}, -1.0, torch::TensorOptions().device(device));
    torch::cuda::synchronize(device.index());
    TensorWork work;
    {
      const c10::StreamGuard guard(producer);
      input.copy_(slow_zero(device) + (rank() + 1.0));
      work = allreduce_async_(input, {.name = "produced"});
    }
    const c10::StreamGuard guard(consumer);
    const torch::Tensor twice = work.wait() * 2;
    expect_close(twice, torch::full({1 << 20}, 2 * sum_of_ranks(), torch::kFloat32), 1e-6,
                 "made on one stream, read on another");
  }
}

void memory_is_not_reused_early(torch::Device device) {
  const auto options = torch::TensorOptions().device(device);
  for (int round = 0; round < 10; ++round) {
    TensorWork work;
    {
      const torch::Tensor input = torch::ones({1 << 20}, options) * (rank() + 1.0);
      work = allreduce_async(input, {.name = "dropped"});
    }
    for (int i = 0; i < 20; ++i) torch::full({1 << 20}, -5.0, options);
    expect_close(work.wait(), torch::full({1 << 20}, sum_of_ranks(), torch::kFloat32), 1e-6,
                 "an input that was dropped at once");
    // An operation that nobody waits for must not write into the next tensor in its memory.
    static_cast<void>(allreduce_async(torch::ones({1 << 20}, options),
                                      {.name = fmt::format("forgotten{}", round)}));
    const torch::Tensor next = slow_zero(device) + torch::full({1 << 20}, 3.0, options);
    expect_close(next, torch::full({1 << 20}, 3.0, torch::kFloat32), 0,
                 "a tensor after an operation that nobody waited for");
  }
}

void outputs_of_unknown_shape(torch::Device device) {
  const auto options = torch::TensorOptions().device(device);
  for (int round = 0; round < 10; ++round) {
    const torch::Tensor input = torch::full({256, 1024}, rank() + 1.0, options);
    TensorWork work = allgather_async(input, {.name = "rows"});
    // The output may get freed memory that this stream still writes to.
    for (int i = 0; i < 8; ++i) {
      torch::Tensor busy = torch::empty({256 * size(), 1024}, options);
      busy.copy_(slow_zero(device) - 9.0);
    }
    const torch::Tensor all = work.wait();
    for (int r = 0; r < size(); ++r) {
      expect_close(all.narrow(0, 256 * r, 256), torch::full({256, 1024}, r + 1.0, torch::kFloat32),
                   0, "rows that arrive while memory is freed");
    }
  }
}

}  // namespace

std::vector<Check> stream_checks() {
  return {{"made on one stream, read on another", producer_and_consumer},
          {"memory is not reused early", memory_is_not_reused_early},
          {"outputs of unknown shape on a busy stream", outputs_of_unknown_shape}};
}

}  // namespace kolo::gpu
