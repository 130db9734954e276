#include "bindings/c10d/start.h"

#include "bindings/c10d/arguments.h"
#include "bindings/core/messages.h"
#include "bindings/core/ordered_start.h"
#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/tensor_refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

namespace kolo::c10d_binding {
namespace {

std::shared_ptr<Work> in_order(const OrderedArguments& call, const KeepAlive& keep_alive) {
  return throwing_for_host([&] { return start_ordered(call, keep_alive); });
}

std::shared_ptr<Work> by_order(Submission call, Allocator allocate = {}) {
  return throwing_for_host([&] { return start_by_order(std::move(call), std::move(allocate)); });
}

std::shared_ptr<const void> owner_of(const torch::Tensor& a, const torch::Tensor& b) {
  return std::make_shared<const std::pair<torch::Tensor, torch::Tensor>>(a, b);
}

/// Starts by in-order submission; `count` has the meaning of OrderedArguments::count.
std::shared_ptr<Work> start_on_host(const ProcessSet& set, OrderedArguments call,
                                    const torch::Tensor& input, const torch::Tensor& output,
                                    std::int64_t count) {
  call.input = static_cast<const std::byte*>(input.const_data_ptr());
  call.output = static_cast<std::byte*>(output.data_ptr());
  call.count = count;
  call.type = moved_type_of(output, {});
  call.process_set = set.id();
  return in_order(call, [&input, &output] { return owner_of(input, output); });
}

/// Returns the existing memory, or null if the size differs, which fails the operation.
Allocator into(const torch::Tensor& output) {
  return [output](const Shape& shape) -> void* {
    return element_count(shape) == output.numel() ? output.data_ptr() : nullptr;
  };
}

/// A negotiated call as it is submitted, without its output. `owner` keeps its memory.
Submission negotiated(const ProcessSet& set, OperationKind kind, const torch::Tensor& input,
                      std::shared_ptr<const void> owner) {
  Submission call;
  call.signature = {.kind = kind, .type = moved_type_of(input, {}), .shape = {input.numel()}};
  call.input = static_cast<const std::byte*>(input.const_data_ptr());
  call.keep_alive = std::move(owner);
  call.process_set = set.id();
  call.stream = current_stream(input.device());
  return call;
}

MessageOptions message(const ProcessSet& set, const torch::Tensor& tensor, int tag) {
  if (tag < 0)
    raise(ErrorCode::kInvalidArgument, fmt::format("c10d message: tag {} is negative", tag));
  return {.tag = static_cast<std::uint32_t>(tag),
          .keep_alive = std::make_shared<const torch::Tensor>(tensor),
          .process_set = set,
          .stream = current_stream(tensor.device())};
}

/// What kolo makes of one of c10d's operations, and of which elements.
struct KnownOp {
  c10d::ReduceOp::RedOpType theirs;
  const char* name;
  ReduceOp ours;
  bool (*fits)(torch::ScalarType type);
};

bool is_any(torch::ScalarType /*type*/) { return true; }
bool is_floating(torch::ScalarType type) {
  return torch::isFloatingType(type) || torch::isComplexType(type);
}
bool is_integral(torch::ScalarType type) {
  return torch::isIntegralType(type, /*includeBool=*/true);
}

/// BAND, BOR and BXOR reduce single bits: see reduced_form().
constexpr KnownOp kKnownOps[] = {
    {c10d::ReduceOp::SUM, "SUM", ReduceOp::kSum, is_any},
    {c10d::ReduceOp::AVG, "AVG", ReduceOp::kAverage, is_any},
    {c10d::ReduceOp::PRODUCT, "PRODUCT", ReduceOp::kProduct, is_any},
    {c10d::ReduceOp::MIN, "MIN", ReduceOp::kMin, is_any},
    {c10d::ReduceOp::MAX, "MAX", ReduceOp::kMax, is_any},
    {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", ReduceOp::kSum, is_floating},
    {c10d::ReduceOp::BAND, "BAND", ReduceOp::kMin, is_integral},
    {c10d::ReduceOp::BOR, "BOR", ReduceOp::kMax, is_integral},
    {c10d::ReduceOp::BXOR, "BXOR", ReduceOp::kSum, is_integral},
};

/// Null for an operation that is not known.
const KnownOp* find_op(c10d::ReduceOp::RedOpType op) {
  const auto* const found = std::find_if(std::begin(kKnownOps), std::end(kKnownOps),
                                         [op](const KnownOp& known) { return known.theirs == op; });
  return found == std::end(kKnownOps) ? nullptr : found;
}

bool is_bitwise(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR ||
         op.op_ == c10d::ReduceOp::BXOR;
}

constexpr std::int64_t kBits = 8;

/// One for each bit of a byte.
torch::Tensor bits_of_byte(torch::Device device) {
  return torch::tensor({1, 2, 4, 8, 16, 32, 64, 128}, torch::TensorOptions(torch::kUInt8))
      .to(device);
}

}  // namespace

void call_refused(const ProcessSet& set, const Called& called, const std::string& why) {
  for (std::size_t i = 0; i < called.operations; ++i)
    called.in_order ? refuse_ordered(called.kind, why, set)
                    : refuse_by_order(called.kind, why, set);
}

void call_refused(const ProcessSet& set, const CalledMessage& called, const std::string& why) {
  if (called.tag >= 0)
    refuse_message(called.kind, called.peer, static_cast<std::uint32_t>(called.tag), why, set);
}

ReduceOp reduce_op(const c10d::ReduceOp& op, const torch::Tensor& tensor, const char* call) {
  const torch::ScalarType type = tensor.scalar_type();
  const DataType reduced_type = naming(call, [&] { return data_type_of(tensor, {}); });
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM && !op.supplement_)
    refuse(call, "PREMUL_SUM has no factor (ReduceOp::supplement_)");
  const KnownOp* const known = find_op(op.op_);
  if (known != nullptr && known->fits(type) && is_supported(reduced_type, known->ours))
    return known->ours;
  raise(ErrorCode::kUnsupported,
        fmt::format(
            "c10d {}: kolo reduces by SUM and PRODUCT, by AVG all but bool tensors, by MIN and MAX "
            "all but complex ones, floating and complex ones by PREMUL_SUM, and integers and bool "
            "ones by BAND, BOR and BXOR; not {} tensors by {}",
            call, torch::toString(type), known == nullptr ? "an unknown operation" : known->name));
}

torch::Tensor reduced_form(const torch::Tensor& input, const c10d::ReduceOp& op) {
  if (is_bitwise(op)) {
    const torch::Tensor bytes = input.view({-1}).view(torch::kUInt8).unsqueeze(1);
    return bytes.bitwise_and(bits_of_byte(input.device())).ne(0).to(torch::kUInt8).view({-1});
  }
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return input;
  const auto* const factor =
      static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (factor->tensor_factor.defined())
    return input * factor->tensor_factor.to(input.device(), input.scalar_type());
  return (input * factor->double_factor).to(input.scalar_type());
}

Output::Output(torch::Tensor tensor, bool with_elements) : memory_(std::move(tensor)) {
  if (is_plain(memory_)) return;
  tensor_ = memory_.detach();
  memory_ =
      with_elements ? plain(tensor_) : torch::empty_like(tensor_, torch::MemoryFormat::Contiguous);
}

Output::Output(torch::Tensor tensor, const c10d::ReduceOp& op) : Output(std::move(tensor)) {
  if (!is_bitwise(op)) return;
  if (!tensor_.defined()) tensor_ = memory_.detach();
  const auto bits = static_cast<std::int64_t>(tensor_.nbytes()) * kBits;
  memory_ = torch::empty({bits}, tensor_.options().dtype(torch::kUInt8));
  is_bits_ = true;
}

void Output::finish() const {
  if (!is_elsewhere()) return;
  if (!is_bits_) {
    tensor_.copy_(memory_);
    return;
  }
  // A sum of bits wraps around at 256, so its last bit stays.
  const torch::Tensor bits = memory_.view({-1, kBits}).bitwise_and(1);
  const torch::Tensor bytes =
      (bits * bits_of_byte(memory_.device())).sum({1}, /*keepdim=*/false, torch::kUInt8);
  tensor_.copy_(bytes.view(tensor_.scalar_type()).view(tensor_.sizes()));
}

std::function<void()> finishing(const Output& output) {
  if (!output.is_elsewhere()) return {};
  return [output] { output.finish(); };
}

std::function<void()> finishing(std::vector<Output> elsewhere) {
  if (elsewhere.empty()) return {};
  return [elsewhere = std::move(elsewhere)] {
    for (const Output& output : elsewhere) output.finish();
  };
}

std::shared_ptr<Work> start_allreduce(const ProcessSet& set, const torch::Tensor& input,
                                      const torch::Tensor& output, ReduceOp op, bool will_wait) {
  if (output.is_cpu())
    return start_on_host(set, {.kind = OperationKind::kAllreduce, .op = op, .will_wait = will_wait},
                         input, output, output.numel());
  Submission call = negotiated(set, OperationKind::kAllreduce, input, owner_of(input, output));
  call.signature.op = op;
  call.output = static_cast<std::byte*>(output.data_ptr());
  return by_order(std::move(call));
}

std::shared_ptr<Work> start_broadcast(const ProcessSet& set, const torch::Tensor& tensor, int root,
                                      bool will_wait) {
  if (tensor.is_cpu())
    return start_on_host(set,
                         {.kind = OperationKind::kBroadcast, .root = root, .will_wait = will_wait},
                         tensor, tensor, tensor.numel());
  Submission call = negotiated(set, OperationKind::kBroadcast, tensor, owner_of(tensor, tensor));
  call.signature.root = root;
  call.output = static_cast<std::byte*>(tensor.data_ptr());
  return by_order(std::move(call));
}

std::shared_ptr<Work> start_allgather(const ProcessSet& set, const torch::Tensor& input,
                                      const torch::Tensor& output, bool will_wait) {
  if (output.is_cpu())
    return start_on_host(set, {.kind = OperationKind::kAllgather, .will_wait = will_wait}, input,
                         output, input.numel());
  return by_order(negotiated(set, OperationKind::kAllgather, input, owner_of(input, output)),
                  into(output));
}

std::shared_ptr<Work> start_gather_on_host(const ProcessSet& set, const torch::Tensor& input,
                                           const torch::Tensor& output, int root, bool will_wait) {
  return start_on_host(set, {.kind = OperationKind::kGather, .root = root, .will_wait = will_wait},
                       input, output, input.numel());
}

std::shared_ptr<Work> start_reduce_scatter(const ProcessSet& set, const torch::Tensor& input,
                                           const torch::Tensor& output, ReduceOp op,
                                           bool will_wait) {
  if (output.is_cpu())
    return start_on_host(set,
                         {.kind = OperationKind::kReduceScatter, .op = op, .will_wait = will_wait},
                         input, output, output.numel());
  Submission call = negotiated(set, OperationKind::kReduceScatter, input, owner_of(input, output));
  call.signature.op = op;
  return by_order(std::move(call), into(output));
}

std::shared_ptr<Work> start_barrier(const ProcessSet& set, bool will_wait) {
  return in_order(
      {.kind = OperationKind::kBarrier, .process_set = set.id(), .will_wait = will_wait}, {});
}

std::shared_ptr<Work> start_send(const ProcessSet& set, const torch::Tensor& tensor, int to,
                                 int tag) {
  return throwing_for_host([&] {
    return send_async(tensor.const_data_ptr(), tensor.numel(), moved_type_of(tensor, {}), to,
                      message(set, tensor, tag));
  });
}

std::shared_ptr<Work> start_recv(const ProcessSet& set, const torch::Tensor& tensor, int from,
                                 int tag) {
  return throwing_for_host([&] {
    return recv_async(tensor.data_ptr(), tensor.numel(), moved_type_of(tensor, {}), from,
                      message(set, tensor, tag));
  });
}

std::shared_ptr<Work> start_recv_from_any(const ProcessSet& set, const torch::Tensor& tensor,
                                          int tag) {
  return throwing_for_host([&] {
    return recv_from_any_async(tensor.data_ptr(), tensor.numel(), moved_type_of(tensor, {}),
                               message(set, tensor, tag));
  });
}

Parts::Parts(std::vector<std::int64_t> expected, const torch::TensorOptions& options)
    : expected_(std::move(expected)),
      options_(options.requires_grad(false)),
      memory_(std::make_shared<torch::Tensor>()) {}

void Parts::start(const ProcessSet& set, OperationKind kind, const torch::Tensor& input, int root,
                  std::vector<std::int64_t> splits) {
  using Owner = std::pair<torch::Tensor, std::shared_ptr<torch::Tensor>>;
  Submission call = negotiated(set, kind, input, std::make_shared<const Owner>(input, memory_));
  call.signature.root = root;
  call.splits = std::move(splits);
  // Allocates the size that arrives, even if another size is expected. Otherwise this rank alone
  // would fail, with a misleading error about missing memory.
  work_ = by_order(std::move(call), allocator_of(memory_, options_));
}

torch::Tensor Parts::from(std::size_t rank, const char* call,
                          const std::vector<int>& world_ranks) const {
  const std::vector<std::int64_t>& received = work_->received_splits();
  // A scatter reports no splits: there is one part.
  const std::int64_t came = received.empty() ? memory_->numel() : received.at(rank);
  if (came != expected_.at(rank)) {
    raise(
        ErrorCode::kMismatch,
        fmt::format("c10d {}: {} elements came from rank {}, but the output for them has {}; what "
                    "a rank sends is as large as what the others take from it",
                    call, came, world_ranks.at(rank), expected_.at(rank)));
  }
  const auto before = received.begin() + static_cast<std::ptrdiff_t>(received.empty() ? 0 : rank);
  return memory_->narrow(0, std::accumulate(received.begin(), before, std::int64_t{0}), came);
}

void Parts::copy_to(const std::vector<torch::Tensor>& list, const char* call,
                    const std::vector<int>& world_ranks) const {
  for (std::size_t i = 0; i < list.size(); ++i)
    c10d_binding::copy_to(list[i], from(i, call, world_ranks));
}

}  // namespace kolo::c10d_binding
