#include "bindings/torch/gradients/ddp_agreement.h"

#include "bindings/core/refusals.h"
#include "bindings/torch/gradients/agreement.h"
#include "bindings/torch/gradients/buckets.h"
#include "bindings/torch/gradients/gradient_hooks.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/replicas.h>

#include <ATen/MemoryOverlap.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace kolo {
namespace {

constexpr std::size_t kShown = 5;            ///< names in one message
constexpr std::int64_t kReasonBytes = 1000;  ///< length of a rank's reason in the table

std::string text_of(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]\twith strides [{}]", torch::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", "));
}

/// One line for each option that decides what ranks send, and one for each tensor, for agree().
std::vector<std::string> lines_of(const NamedTensors& parameters, const NamedTensors& buffers,
                                  const DdpOptions& options) {
  std::vector<std::string> lines{
      fmt::format("option 'bucket_cap_mb'\t{}", options.bucket_cap_mb),
      fmt::format("option 'broadcast_buffers'\t{}", options.broadcast_buffers),
      fmt::format("option 'find_unused_parameters'\t{}", options.find_unused_parameters),
      fmt::format("option 'gradient_as_bucket_view'\t{}", options.gradient_as_bucket_view),
      fmt::format("option 'static_graph'\t{}", options.static_graph),
      fmt::format("option 'weigh_by_samples'\t{}", options.weigh_by_samples)};
  for (const auto& [name, tensor] : parameters)
    lines.push_back(fmt::format("parameter '{}'\t{}\t{}", name, text_of(tensor),
                                tensor.requires_grad() ? "trained (requires_grad)" : "frozen"));
  for (const auto& [name, tensor] : buffers)
    lines.push_back(fmt::format("buffer '{}'\t{}", name, text_of(tensor)));
  return lines;
}

[[noreturn]] void wrong(const std::string& what) {
  raise(ErrorCode::kInvalidArgument, "DistributedDataParallel: " + what);
}

using Devices = std::vector<torch::Device>;

void add(const torch::Device& device, Devices& devices) {
  if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
}

/// For example "{cpu, cuda:0}".
std::string list_of(const Devices& devices) {
  std::string text;
  for (const torch::Device& device : devices) text += (text.empty() ? "" : ", ") + device.str();
  return "{" + text + "}";
}

/// Writes the tensors that were packed together.
void unpack(const torch::Tensor& values, const std::vector<std::size_t>& pack,
            const std::vector<AgreedTensor>& tensors) {
  std::int64_t begin = 0;
  for (const std::size_t i : pack) {
    const torch::Tensor& tensor = tensors[i].tensor;
    // Bypasses autograd, which otherwise refuses the backward of an earlier forward (two
    // forwards, then one backward). What that forward saved has these values already, unless the
    // module itself has changed a buffer since.
    tensor.variable_data().copy_(values.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

void check_output(const torch::Device& device, const Devices& possible, bool is_split) {
  const torch::Device output = complete_devices({device}).front();
  const std::string where =
      "output_device is " + output.str() + ", but the module is on " + list_of(possible);
  if (is_split)
    wrong(where + "; its forward decides where the result is, so leave output_device out");
  if (std::find(possible.begin(), possible.end(), output) == possible.end()) wrong(where);
}

/// Throws if the options' devices do not fit those of the module.
void check_devices(const Devices& devices, const DdpOptions& options) {
  const Devices ids = complete_devices(options.device_ids);
  const std::string what =
      "device_ids is " + list_of(ids) + ", but the module is on " + list_of(devices);
  const bool is_split = devices.size() > 1;
  if (is_split && !ids.empty() &&
      (ids.size() != devices.size() ||
       !std::is_permutation(ids.begin(), ids.end(), devices.begin())))
    wrong(what + "; leave device_ids empty or list exactly the module's devices");
  if (!is_split && !ids.empty() && ids.front() != devices.front())
    wrong(what + (ids.size() == 1 ? "; move the module there"
                                  : "; the first is the module's, the others its replicas'"));
  if (options.output_device)
    check_output(*options.output_device, is_split || ids.empty() ? devices : ids, is_split);
}

/// Throws if something is wrong on this rank alone.
void check(const NamedTensors& parameters, const NamedTensors& buffers, const DdpOptions& options) {
  if (!(options.bucket_cap_mb > 0))
    wrong(fmt::format("bucket_cap_mb is {}; it is above 0", options.bucket_cap_mb));
  if (std::none_of(parameters.begin(), parameters.end(),
                   [](const auto& named) { return named.second.requires_grad(); }))
    wrong("the module has no parameter that requires a gradient; use it without a wrapper");
  NamedTensors travelling = parameters;
  Devices devices;
  for (const auto& [name, tensor] : parameters) {
    add(tensor.device(), devices);
    if (const auto owner = GradientHooks::owner_of(tensor))
      wrong("parameter '" + name + "' is reduced as '" + *owner +
            "' already; use one DistributedDataParallel or DistributedOptimizer");
  }
  for (const auto& [name, tensor] : buffers) {
    add(tensor.device(), devices);
    if (options.broadcast_buffers) travelling.emplace_back(name, tensor);
  }
  check_devices(devices, options);
  for (const auto& [name, tensor] : travelling) {
    static_cast<void>(data_type_of(tensor, name));
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
      wrong("'" + name +
            "' has several elements in one place of memory, as expand() makes them; "
            "register a contiguous() one");
  }
}

ErrorCode code_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Exception& error) {
    return error.code();
  } catch (...) {
    return ErrorCode::kInvalidArgument;
  }
}

}  // namespace

void check_module(const std::string& prefix, const NamedTensors& parameters,
                  const NamedTensors& buffers, const DdpOptions& options) {
  agree("DistributedDataParallel", prefix + "module", {}, [&] {
    check(parameters, buffers, options);
    return lines_of(parameters, buffers, options);
  });
}

void broadcast_packed(const std::string& prefix, const std::vector<AgreedTensor>& tensors) {
  const torch::NoGradGuard no_grad;
  std::vector<AgreedLayout> layouts;
  std::vector<std::size_t> in_order;
  std::string refusal;
  for (const AgreedTensor& agreed : tensors) {
    in_order.push_back(layouts.size());
    layouts.push_back(agreed.layout);
    if (refusal.empty() && !agreed.layout.fits(agreed.tensor))
      refusal = "'" + agreed.name + "' " + agreed.layout.change_in(agreed.tensor);
  }
  constexpr double kNoCap = std::numeric_limits<double>::infinity();
  const auto packs = assign_buckets(layouts, in_order, kNoCap, kNoCap);
  std::vector<TensorWork> works;
  for (const auto& pack : packs) {
    const std::string name =
        prefix + std::to_string(works.size()) + "/" + torch::toString(layouts[pack.front()].type());
    if (!refusal.empty()) {
      auto refused = refuse_allreduces({name}, refusal, "", {});
      works.push_back(TensorWork({.work = std::move(refused.front()), .result = {}}));
      continue;
    }
    std::vector<torch::Tensor> flat;
    for (const std::size_t i : pack) flat.push_back(tensors[i].tensor.detach().reshape({-1}));
    works.push_back(broadcast_async_(torch::cat(flat), 0, {.name = name}));
  }
  for (TensorWork& work : works) work.drain();  // drain all first, in case one has failed
  for (std::size_t p = 0; p < packs.size(); ++p) {
    const torch::Tensor values = works[p].wait();
    if (rank() != 0) unpack(values, packs[p], tensors);
  }
}

void receive_buffers(const std::string& prefix, const std::vector<AgreedTensor>& buffers) {
  try {
    broadcast_packed(prefix, buffers);
  } catch (const Exception& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    const std::string why = error.what();
    const bool has_changed = why.find(kWhenMade) != std::string::npos;
    raise(error.code(),
          "DistributedDataParallel: the buffers cannot come from rank 0: " + why +
              (has_changed
                   ? "; change a module before it is wrapped, or set broadcast_buffers to false"
                   : ". With Join, set broadcast_buffers to false, and give all ranks the buffers "
                     "of one at the end: broadcast_parameters(module, join.finish())"));
  }
}

TensorWork tell_missing(const std::string& prefix, const std::vector<std::uint8_t>& missing,
                        const std::exception_ptr& failure) {
  // One row per rank: its missing gradients, the code of its failure, and a text that ends with a
  // zero.
  const auto count = static_cast<std::int64_t>(missing.size());
  torch::Tensor table = torch::zeros({size(), count + kReasonBytes + 2}, torch::kUInt8);
  auto* const row = table[rank()].mutable_data_ptr<std::uint8_t>();
  std::copy(missing.begin(), missing.end(), row);
  if (failure) {
    const std::string reason = failure_of([&] { std::rethrow_exception(failure); });
    row[count] = static_cast<std::uint8_t>(code_of(failure));
    std::copy_n(reason.begin(), std::min<std::int64_t>(std::ssize(reason), kReasonBytes),
                row + count + 1);
  }
  return allreduce_async_(table, {.name = prefix + "missing"});
}

void raise_missing(TensorWork& told, const NamedTensors& parameters) {
  const auto count = static_cast<std::int64_t>(parameters.size());
  const torch::Tensor table = told.wait();
  for (int r = 0; r < size(); ++r) {
    const auto* const row = table[r].const_data_ptr<std::uint8_t>();
    const std::string reason(reinterpret_cast<const char*>(row + count + 1));
    if (reason.empty()) continue;
    raise(static_cast<ErrorCode>(row[count]), "rank " + std::to_string(r) + ": " + reason);
  }
  std::vector<std::string> found;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r)
      if (table[r][i].item<std::uint8_t>() != 0) ranks.push_back(r);
    if (ranks.empty()) continue;
    found.push_back(fmt::format("parameter '{}' on rank {}",
                                parameters[static_cast<std::size_t>(i)].first,
                                fmt::join(ranks, ", ")));
  }
  const std::size_t more = found.size() - std::min(found.size(), kShown);
  found.resize(found.size() - more);
  raise(ErrorCode::kMismatch,
        fmt::format("DistributedDataParallel: this backward gave no gradient to {}{} (of {} "
                    "ranks). Set find_unused_parameters if not every step uses every parameter; "
                    "with static_graph, steps must use the same ones, as often; a parameter that "
                    "was frozen since needs a new DistributedDataParallel",
                    fmt::join(found, "; "), more > 0 ? fmt::format("; and {} more", more) : "",
                    size()));
}

}  // namespace kolo
