// ProcessGroupKolo: its end, and groups of other members: abort, shrink, reconfigure. User threads;
// one thread at a time for each group.
#include "bindings/c10d/arguments.h"
#include "bindings/c10d/work.h"
#include "bindings/core/regroup.h"

#include <kolo/c10d.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kolo {
namespace {

using c10d_binding::refuse;

/// c10d passes NCCL's flags on.
constexpr int kShrinkAbort = 1;

/// The new process set of these ranks, or nothing if the world has ended for this rank.
std::optional<ProcessSet> add_set(const std::vector<int>& ranks) {
  if (has_failed()) return std::nullopt;
  try {
    return add_process_set_by_its_ranks(ranks);
  } catch (const Exception&) {
    if (!has_failed()) throw;
    return std::nullopt;
  }
}

}  // namespace

void ProcessGroupKolo::abort() {
  if (world_ != world_number()) return;
  hooks_->abort.call();
  abort_process_set(set_, "ProcessGroupKolo::abort() was called");
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupKolo::shrink(
    const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
    const c10::intrusive_ptr<Options>& opts_override) {
  static_cast<void>(set());
  if (shrink_flags != 0 && shrink_flags != kShrinkAbort)
    refuse("shrink", fmt::format("flags {} are unknown; 0 and 1 (abort) are", shrink_flags));
  std::vector<int> excluded;  // world ranks
  for (const std::int64_t rank : ranks_to_exclude) {
    excluded.push_back(world_rank(rank, "shrink"));
    if (rank == rank_)
      refuse("shrink", fmt::format("rank {} excludes itself; the ranks that stay call it", rank));
  }
  std::sort(excluded.begin(), excluded.end());
  if (excluded.empty() || std::adjacent_find(excluded.begin(), excluded.end()) != excluded.end()) {
    refuse("shrink", fmt::format("takes a rank or more, each once, not [{}]",
                                 fmt::join(ranks_to_exclude, ", ")));
  }
  std::vector<int> stay;
  std::set_difference(ranks_.begin(), ranks_.end(), excluded.begin(), excluded.end(),
                      std::back_inserter(stay));
  if (shrink_flags == kShrinkAbort) abort();
  std::optional<ProcessSet> set = add_set(stay);
  if (!set) {
    if (size_ != kolo::size()) {
      raise(ErrorCode::kUnsupported,
            fmt::format("c10d shrink: communication has failed, and the group's {} ranks are not "
                        "all {} of the world; shrink a group of all, or call reconfigure()",
                        size_, kolo::size()));
    }
    meet_without(excluded, std::nullopt);
    set.emplace();
  }
  auto group = c10::make_intrusive<ProcessGroupKolo>(*set);
  group->setTimeout(opts_override ? opts_override->timeout : timeout_);
  return group;
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

ProcessGroupKolo::ProcessGroupKolo(const c10::intrusive_ptr<Options>& options)
    : Backend(-1, 0),
      begins_without_world_(true),
      hooks_(std::make_shared<c10d_binding::GroupHooks>()),
      futures_(std::make_unique<c10d_binding::FutureThread>()) {
  if (!options || !options->enable_reconfigure) {
    raise(ErrorCode::kInvalidArgument,
          "ProcessGroupKolo: options are for a group that waits for reconfigure(), but "
          "enable_reconfigure is not set; give a process set instead");
  }
}

c10d::ReconfigureHandle ProcessGroupKolo::get_reconfigure_handle() const {
  return meeting_handle();
}

c10::intrusive_ptr<c10d::Work> ProcessGroupKolo::reconfigure(
    const c10d::ReconfigureOptions& options) {
  std::vector<std::string> handles = std::visit(
      [](const auto& given) { return std::vector<std::string>(given.begin(), given.end()); },
      options.handles);
  std::vector<std::string> sorted = handles;
  std::sort(sorted.begin(), sorted.end());
  if (options.handles.index() == 0) handles = sorted;
  for (const std::string& handle : handles)
    if (!is_meeting_handle(handle))
      refuse("reconfigure", fmt::format("'{}' is no handle of ProcessGroupKolo", handle));
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    refuse("reconfigure", fmt::format("the handle '{}' is there twice", *twice));
  if (!std::binary_search(sorted.begin(), sorted.end(), meeting_handle())) {
    refuse("reconfigure", fmt::format("this process's handle, '{}', is not among the {} given",
                                      meeting_handle(), handles.size()));
  }
  if (uuid_ == options.uuid)
    refuse("reconfigure", fmt::format("uuid {} is that of the last time; give a new one, the same "
                                      "on all ranks",
                                      options.uuid));
  const std::chrono::milliseconds timeout = options.timeout.value_or(timeout_);
  std::optional<std::chrono::seconds> of_phase;
  if (timeout > kNoTimeout) of_phase = std::chrono::ceil<std::chrono::seconds>(timeout);
  uuid_ = options.uuid;
  world_ = 0;
  rank_ = -1;
  size_ = 0;
  try {
    meet_by_handles(handles, options.uuid, of_phase);
  } catch (const Exception& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    refuse("reconfigure", fmt::format("{}; all {} processes give the same handles and the same "
                                      "uuid, which is {} here",
                                      error.what(), handles.size(), options.uuid));
  }
  set_ = ProcessSet();
  world_ = world_number();
  ranks_ = set_.ranks();
  rank_ = kolo::rank();
  size_ = kolo::size();
  return c10::make_intrusive<c10d_binding::GroupWork>(
      c10d_binding::Started{},
      c10d_binding::GroupWork::Call{.type = c10d::OpType::UNKNOWN,
                                    .rank = rank_,
                                    .sequence = 0,
                                    .timeout = c10d::kUnsetTimeout},
      *futures_, hooks_);
}

#endif

}  // namespace kolo
