// ProcessGroupKolo: construction, queries, and those calls of c10d::Backend whose tensors are whole
// on each rank. User threads; one thread at a time for each group.
#include "bindings/c10d/arguments.h"
#include "bindings/c10d/interruption.h"
#include "bindings/c10d/start.h"
#include "bindings/core/regroup.h"
#include "bindings/core/shared_memory.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/c10d.h>
#include <kolo/torch/memory.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

using namespace c10d_binding;  // NOLINT(google-build-using-namespace)
using CallWork = c10::intrusive_ptr<c10d::Work>;

}  // namespace

ProcessGroupKolo::ProcessGroupKolo(const ProcessSet& set)
    : Backend(set.rank(), set.size()),
      set_(set),
      world_(world_number()),
      ranks_(set.ranks()),
      hooks_(std::make_shared<c10d_binding::GroupHooks>()),
      futures_(std::make_unique<c10d_binding::FutureThread>()) {
  if (rank_ < 0) {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("ProcessGroupKolo: rank {} is not in process set {}; its ranks are {}",
                      kolo::rank(), set.id(), fmt::join(ranks_, ", ")));
  }
}

ProcessGroupKolo::~ProcessGroupKolo() = default;

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupKolo::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(getBackendName());
  options->timeout = std::max(timeout_, kNoTimeout);
  options->global_ranks_in_group.assign(ranks_.begin(), ranks_.end());
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  options->enable_reconfigure = begins_without_world_;
#endif
  return options;
}

void ProcessGroupKolo::setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

void ProcessGroupKolo::addEphemeralTimeout(const std::chrono::milliseconds& timeout) {
  extensions_.push_back({.time = timeout});
}

std::chrono::milliseconds ProcessGroupKolo::extension_of(
    c10::ArrayRef<std::shared_ptr<Work>> operations) {
  std::erase_if(extensions_, [](const Extension& extension) {
    return extension.first && std::all_of(extension.first->begin(), extension.first->end(),
                                          [](const auto& work) { return work->done(); });
  });
  std::chrono::milliseconds all{0};
  for (Extension& extension : extensions_) {
    if (!extension.first) extension.first = operations.vec();
    all += extension.time;
  }
  return all;
}

const ProcessSet& ProcessGroupKolo::set() const {
  stay_if_host_ends();  // each call comes here first
  const auto refuse_call = [](const char* why) {
    throwing_for_host(
        [&] { raise(ErrorCode::kShutdown, std::string("ProcessGroupKolo: ") + why); });
  };
  const std::uint64_t world = world_number();
  if (size_ == 0) refuse_call("the group waits for reconfigure()");
  if (world != world_ && world != 0)
    refuse_call("the world in which the group was made has ended; make a new group");
  return set_;
}

int ProcessGroupKolo::world_rank(std::int64_t rank, const char* call) const {
  if (rank < 0 || rank >= size_)
    refuse(call, fmt::format("there is no rank {} in this group; its ranks are 0 to {}", rank,
                             size_ - 1));
  return ranks_[static_cast<std::size_t>(rank)];
}

bool ProcessGroupKolo::in_order(const at::Tensor& tensor) const {
  return !(tensor.defined() ? tensor.device() : device_).is_cuda();
}

CallWork ProcessGroupKolo::to_work(Started started, c10d::OpType type,
                                   std::chrono::milliseconds timeout, bool is_async) {
  if (!started.inputs.empty()) device_ = started.device;
  if (timeout <= kNoTimeout) timeout = timeout_;
  if (!extensions_.empty()) {
    const std::chrono::milliseconds more = extension_of(started.works);
    if (timeout > kNoTimeout) timeout += more;
  }
  auto work = c10::make_intrusive<GroupWork>(
      std::move(started),
      GroupWork::Call{.type = type, .rank = rank_, .sequence = ++sequence_, .timeout = timeout},
      *futures_, hooks_);
  if (coalesced_) coalesced_->push_back(work);
  // Hooks on completion know a call by its work.
  if (is_async || coalesced_ || !hooks_->completion.empty()) return work;
  work->wait();
  return {};
}

#ifdef C10D_BACKEND_HAS_HOOKS
void ProcessGroupKolo::registerCompletionHook(std::int64_t hook_id, c10d::CompletionHook hook) {
  hooks_->completion.set(hook_id, [hook = std::move(hook)](std::uint64_t key) {
    hook({.completionKey = key, .duration_ms = std::nullopt});
  });
}

void ProcessGroupKolo::unregisterCompletionHook(std::int64_t hook_id) {
  hooks_->completion.remove(hook_id);
}

void ProcessGroupKolo::registerAbortHook(std::int64_t hook_id, c10d::AbortHook hook) {
  hooks_->abort.set(hook_id, std::move(hook));
}

void ProcessGroupKolo::unregisterAbortHook(std::int64_t hook_id) { hooks_->abort.remove(hook_id); }
#endif

bool ProcessGroupKolo::supportsTensorAlloc(c10::DeviceIndex /*device_index*/) {
  return world_ != 0 && world_ == world_number();
}

at::Tensor ProcessGroupKolo::allocateTensor(long size,  // NOLINT(google-runtime-int)
                                            at::TensorOptions options) {
  static_cast<void>(set());
  return shared_zeros({size}, options);
}

std::unordered_map<std::string, std::uint64_t> ProcessGroupKolo::getMemoryStats() {
  static_cast<void>(set());
  const RuntimeInfo info = runtime_info();
  return {{"window_bytes", info.shared_bytes},
          {"arena_bytes", info.arena_bytes},
          {"arena_bytes_used", arena_bytes_used()},
          {"device_arena_bytes", info.device_arena_bytes},
          {"device_arena_bytes_used", device_arena_bytes_used()}};
}

void ProcessGroupKolo::startCoalescing() {
  if (coalesced_) refuse("startCoalescing", "was called twice; call endCoalescing() between");
  coalesced_.emplace();
}

CallWork ProcessGroupKolo::endCoalescing() {
  if (!coalesced_) refuse("endCoalescing", "was called without startCoalescing()");
  const auto works = *std::exchange(coalesced_, std::nullopt);
  Started all;
  for (const auto& work : works) {
    const Started& one = work->started();
    all.works.insert(all.works.end(), one.works.begin(), one.works.end());
    all.results.insert(all.results.end(), one.results.begin(), one.results.end());
    if (!one.results.empty()) all.device = one.device;
  }
  all.finish = [works] {
    for (const auto& work : works) work->wait();
  };
  return to_work(std::move(all), c10d::OpType::COALESCED, c10d::kUnsetTimeout);
}

CallWork ProcessGroupKolo::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const torch::NoGradGuard no_grad;
  const int root =
      checked(set(), {OperationKind::kBroadcast, in_order(first_defined(tensors))}, [&] {
        check_types(only(tensors, "broadcast", "tensor"), {}, "broadcast");
        check_outputs(tensors, "broadcast");
        return world_rank(options.rootRank, "broadcast");
      });
  const Output output(tensors[0], /*with_elements=*/true);
  return to_work({.works = {start_broadcast(set(), output.memory(), root, !options.asyncOp)},
                  .results = tensors,
                  .device = tensors[0].device(),
                  .finish = finishing(output),
                  .title = "kolo:broadcast",
                  .inputs = tensors},
                 c10d::OpType::BROADCAST, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == torch::kSparse)
    return allreduce_sparse(tensors, options);
  return allreduce_each(tensors, options, c10d::OpType::ALLREDUCE);
}

CallWork ProcessGroupKolo::allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) {
  return allreduce_each(tensors, options, c10d::OpType::ALLREDUCE_COALESCED);
}

CallWork ProcessGroupKolo::allreduce_each(const Tensors& tensors,
                                          const c10d::AllreduceOptions& options,
                                          c10d::OpType type) {
  const torch::NoGradGuard no_grad;
  const bool is_one = type == c10d::OpType::ALLREDUCE;
  const Called called{.kind = OperationKind::kAllreduce,
                      .in_order = in_order(first_defined(tensors)),
                      .operations = is_one || tensors.empty() ? 1 : tensors.size()};
  const ReduceOp op = checked(set(), called, [&] {
    if (is_one) (void)only(tensors, "allreduce", "tensor");
    if (tensors.empty()) refuse("allreduce_coalesced", "takes a tensor or more, not 0");
    for (const torch::Tensor& tensor : tensors) {
      check_types(tensor, {}, "allreduce");
      check_one_device(tensors.front(), tensor, "allreduce");
    }
    check_outputs(tensors, "allreduce");
    ReduceOp of_all{};
    for (const torch::Tensor& tensor : tensors)
      of_all = reduce_op(options.reduceOp, tensor, "allreduce");
    return of_all;
  });
  Started started{.results = tensors,
                  .device = tensors.front().device(),
                  .title = "kolo:all_reduce",
                  .inputs = tensors};
  std::vector<Output> elsewhere;
  for (const torch::Tensor& tensor : tensors) {
    Output output(tensor, options.reduceOp);
    const torch::Tensor input = reduced_form(input_of(tensor), options.reduceOp);
    started.works.push_back(start_allreduce(set(), input, output.memory(), op, !options.asyncOp));
    if (output.is_elsewhere()) elsewhere.push_back(std::move(output));
  }
  started.finish = finishing(std::move(elsewhere));
  return to_work(std::move(started), type, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor tensor = first_of(tensors);
  const ReduceOp op =
      checked(set(), {OperationKind::kAllreduce, in_order(first_defined(tensors))}, [&] {
        check_types(only(tensors, "reduce", "tensor"), {}, "reduce");
        (void)world_rank(options.rootRank, "reduce");
        if (options.rootRank == rank_) check_outputs(tensors, "reduce");
        return reduce_op(options.reduceOp, tensor, "reduce");
      });
  const torch::Tensor own = input_of(tensor);
  const torch::Tensor input = reduced_form(own, options.reduceOp);
  const Output output(options.rootRank == rank_ ? tensor : torch::empty_like(own),
                      options.reduceOp);
  return to_work({.works = {start_allreduce(set(), input, output.memory(), op, !options.asyncOp)},
                  .results = tensors,
                  .device = tensor.device(),
                  .finish = finishing(output),
                  .title = "kolo:reduce",
                  .inputs = tensors},
                 c10d::OpType::REDUCE, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::barrier(const c10d::BarrierOptions& options) {
  return to_work({.works = {start_barrier(set(), !options.asyncOp)}, .title = "kolo:barrier"},
                 c10d::OpType::BARRIER, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::send(Tensors& tensors, int to, int tag) {
  const torch::NoGradGuard no_grad;
  const int peer = world_rank(to, "send");
  const torch::Tensor tensor = checked(set(), CalledMessage{OperationKind::kSend, peer, tag}, [&] {
    check_types(only(tensors, "send", "tensor"), {}, "send");
    return tensors.front();
  });
  return to_work({.works = {start_send(set(), input_of(tensor), peer, tag)},
                  .results = tensors,
                  .device = tensor.device(),
                  .peer = to,
                  .title = "kolo:send",
                  .inputs = tensors},
                 c10d::OpType::SEND, c10d::kUnsetTimeout);
}

CallWork ProcessGroupKolo::recv(Tensors& tensors, int from, int tag) {
  const torch::NoGradGuard no_grad;
  const int peer = world_rank(from, "recv");
  const torch::Tensor tensor =
      checked(set(), CalledMessage{OperationKind::kReceive, peer, tag}, [&] {
        check_types(only(tensors, "recv", "tensor"), {}, "recv");
        check_outputs(tensors, "recv");
        return tensors.front();
      });
  const Output output(tensor);
  return to_work({.works = {start_recv(set(), output.memory(), peer, tag)},
                  .results = tensors,
                  .device = tensor.device(),
                  .finish = finishing(output),
                  .peer = from,
                  .title = "kolo:recv",
                  .inputs = tensors},
                 c10d::OpType::RECV, c10d::kUnsetTimeout);
}

// No peer is told of a refusal: no rank's message is the one that would have come.
CallWork ProcessGroupKolo::recvAnysource(Tensors& tensors, int tag) {
  const torch::NoGradGuard no_grad;
  check_types(only(tensors, "recvAnysource", "tensor"), {}, "recvAnysource");
  check_outputs(tensors, "recvAnysource");
  const torch::Tensor tensor = tensors.front();
  const Output output(tensor);
  return to_work({.works = {start_recv_from_any(set(), output.memory(), tag)},
                  .results = tensors,
                  .device = tensor.device(),
                  .finish = finishing(output),
                  .senders = ranks_,
                  .title = "kolo:recvAnySource",
                  .inputs = tensors},
                 c10d::OpType::RECVANYSOURCE, c10d::kUnsetTimeout);
}

c10::intrusive_ptr<c10d::ProcessGroup> process_group(const ProcessSet& set) {
  return process_group(c10::make_intrusive<ProcessGroupKolo>(set));
}

c10::intrusive_ptr<c10d::ProcessGroup> process_group(
    const c10::intrusive_ptr<ProcessGroupKolo>& backend) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
  constexpr auto kType = c10d::ProcessGroup::BackendType::CUSTOM;
  for (const c10::DeviceType device : {c10::DeviceType::CPU, c10::DeviceType::CUDA})
    group->setBackend(device, kType, backend);
  group->setDefaultBackend(kType);
  return group;
}

}  // namespace kolo
