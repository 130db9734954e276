// Elastic training: who is furthest, and how the others get there. Called by the training loop's
// thread.
#include "bindings/core/regroup.h"
#include "bindings/torch/gradients/shard_layout.h"
#include "bindings/torch/tensors/archive_bytes.h"
#include "bindings/torch/tensors/fingerprint.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/training/shard_backup.h"

#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/elastic.h>
#include <kolo/torch/objects.h>
#include <kolo/torch/optimizer_state.h>
#include <kolo/torch/rank_sampler.h>
#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/sharded_parameters.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace kolo::elastic {
namespace {

using Clock = std::chrono::steady_clock;

/// How often rank 0 asks the launcher for newcomers.
constexpr std::chrono::milliseconds kAsksEvery(100);
/// Worlds of the same processes that may be lost in a row without a commit.
constexpr int kMostFutile = 3;

/// What all ranks do after a commit; rank 0 says so, in the bits of a number.
constexpr std::int32_t kReset = 1;
constexpr std::int32_t kBackUp = 2;

/// Leaves the function. No std::exception, so that it passes what programs catch.
struct Reset {};

/// Grows with each step of the optimizer; nothing if the state has no tensor that a step writes to.
std::optional<std::int64_t> writes_to(torch::optim::OptimizerParamState& state) {
  const auto tensors = known_tensors_of(state);
  std::int64_t writes = 0;
  for (const torch::Tensor* tensor : tensors.value_or(std::vector<torch::Tensor*>()))
    if (tensor->defined()) writes += 1 + tensor->_version();  // the first step makes the tensor
  return writes > 0 ? std::optional(writes) : std::nullopt;
}

template <class Part>
std::vector<Part*> all_of(Part* first, const std::map<std::string, Part*>& further) {
  std::vector<Part*> all;
  if (first != nullptr) all.push_back(first);
  for (const auto& [name, part] : further) all.push_back(part);
  return all;
}

void refuse_spread(torch::optim::Optimizer& optimizer) {
  const auto* const reducing = dynamic_cast<ReducingOptimizer*>(&optimizer);
  if (reducing != nullptr && reducing->process_set().id() != 0) {
    raise(
        ErrorCode::kUnsupported,
        "elastic::State: the optimizer reduces over a process set, so ranks outside it have other "
        "weights, and a rank that comes to it in the next world would bring those; use one over "
        "all ranks, or make it within the function");
  }
}

}  // namespace

struct State::Impl {
  /// Steps of one optimizer.
  struct Steps {
    bool counts = false;
    std::int64_t number = 0;  ///< writes to its state; else a fingerprint of the parameters

    bool operator==(const Steps&) const = default;
  };

  /// How far a rank is. Ranks compare these, field by field.
  struct Position {
    /// 0: a new process, or one that was lost in the middle of taking over another's state.
    std::int64_t has_state = 0;
    std::int64_t progress = 0;
    /// Above 0 if an optimizer has stepped since the last commit, by the same number on all ranks.
    std::int64_t steps = 0;
    std::int64_t epoch = 0;
    std::int64_t in_epoch = 0;  ///< position of the sampler

    std::tuple<std::int64_t, std::int64_t, std::int64_t> distance() const {
      return {has_state, progress, steps};
    }
  };

  CheckpointParts parts;
  RankSampler* sampler = nullptr;
  std::vector<torch::nn::Module*> modules;
  std::vector<torch::optim::Optimizer*> optimizers;  ///< all but `sharded`
  std::vector<torch::optim::Optimizer*> sharded;
  std::vector<SchedulerState*> schedulers;
  std::vector<WorldMember*> members;
  std::vector<std::function<void()>> callbacks;
  bool is_running = false;  ///< within run() of an elastic job
  Position committed;       ///< at the last commit
  std::vector<Steps> steps_at_commit;
  /// Where this rank left its world, until all have the state of the furthest one. Taking over a
  /// state looks like a step, so this is not found out twice.
  std::optional<Position> left_at;
  Clock::time_point asks_at = {};
  /// With sharded optimizers. All ranks then go back to a backup, so steps are not counted.
  std::optional<ShardBackup> backup;

  /// The optimizers' steps so far. An optimizer may write to parameters unseen (`data()`), but a
  /// step also writes to its state. Without a state (SGD without momentum, a program's own
  /// optimizer), the parameters' bits tell whether there was a step.
  std::vector<Steps> steps() const {
    std::vector<Steps> all;
    if (backup) return all;
    for (torch::optim::Optimizer* optimizer : optimizers) {
      Steps steps;
      for (const auto& [parameter, state] : optimizer->state()) {
        const auto writes = writes_to(*state);
        steps.counts = steps.counts || writes.has_value();
        steps.number += writes.value_or(0);
      }
      if (!steps.counts) {
        std::vector<torch::Tensor> tensors;
        for (const auto& group : optimizer->param_groups())
          tensors.insert(tensors.end(), group.params().begin(), group.params().end());
        steps.number = fingerprint_of(tensors);
      }
      all.push_back(steps);
    }
    return all;
  }

  std::int64_t steps_since_commit() const {
    const std::vector<Steps> now = steps();
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const Steps& before = steps_at_commit[i];
      const bool counts = now[i].counts && before.counts;
      sum += counts ? now[i].number - before.number : now[i] != before ? 1 : 0;
    }
    return sum;
  }

  /// Notes that all up to here has happened.
  void note() {
    committed.has_state = 1;
    steps_at_commit = steps();
    if (sampler == nullptr) return;
    committed.in_epoch = static_cast<std::int64_t>(sampler->position());
  }

  /// Where this rank is now, perhaps in the middle of a step.
  Position now() const {
    Position position = committed;
    position.steps = steps_since_commit();
    // The step has happened, so its batch has been used.
    if (position.steps > 0 && sampler != nullptr)
      position.in_epoch = static_cast<std::int64_t>(sampler->position());
    return position;
  }

  void set_epoch() const {
    if (sampler != nullptr) sampler->set_epoch(static_cast<std::size_t>(committed.epoch));
  }

  std::string small_parts() const {
    torch::serialize::OutputArchive archive;
    const auto write = [&](const std::string& key, const auto& part) {
      torch::serialize::OutputArchive nested(archive.compilation_unit());
      part.save(nested);
      archive.write(key, nested);
    };
    for (std::size_t i = 0; i < schedulers.size(); ++i) write(std::to_string(i), *schedulers[i]);
    if (parts.scaler != nullptr) write("scaler", *parts.scaler);
    return bytes_of(archive);
  }

  void take_small_parts(const std::string& bytes) const {
    torch::serialize::InputArchive archive;
    archive.load_from(bytes.data(), bytes.size());
    const auto read = [&](const std::string& key, auto& part) {
      torch::serialize::InputArchive nested;
      archive.read(key, nested);
      part.load(nested);
    };
    for (std::size_t i = 0; i < schedulers.size(); ++i) read(std::to_string(i), *schedulers[i]);
    if (parts.scaler != nullptr) read("scaler", *parts.scaler);
  }

  /// Collective: all ranks get the state of the one that is furthest. `always`: even if all are at
  /// the same place already.
  void share(bool always) {
    if (!left_at) left_at = now();
    const Position mine = *left_at;
    const auto all = positions(mine);
    const auto furthest = std::max_element(
        all.begin(), all.end(),
        [](const Position& a, const Position& b) { return a.distance() < b.distance(); });
    const int root = static_cast<int>(furthest - all.begin());
    if (furthest->has_state == 0) {
      raise(ErrorCode::kPeerLost,
            "elastic::run(): all ranks that had the training's state are gone; begin anew from a "
            "checkpoint");
    }
    const bool is_behind = mine.distance() != furthest->distance();
    const bool copies = always || std::any_of(all.begin(), all.end(), [&](const Position& other) {
                          return other.distance() != furthest->distance();
                        });
    if (copies) {
      // If a rank is lost meanwhile, this one has a mixture.
      if (is_behind) left_at->has_state = 0;
      for (const torch::nn::Module* module : modules) broadcast_parameters(*module, root);
      for (torch::optim::Optimizer* optimizer : optimizers)
        broadcast_optimizer_state(*optimizer, root);
      for (torch::optim::Optimizer* optimizer : sharded) broadcast_options(*optimizer, root);
      const std::string bytes = broadcast_object(rank() == root ? small_parts() : "", root);
      if (parts.data != nullptr) *parts.data = broadcast_object(*parts.data, root);
      if (is_behind && bytes != small_parts()) take_small_parts(bytes);
    }
    committed = *furthest;
    left_at.reset();
    resume_sampler();
    // A step that one rank has made, and that no commit has counted.
    if (std::exchange(committed.steps, 0) > 0) ++committed.progress;
    steps_at_commit = steps();
  }

  void resume_sampler() const {
    if (sampler == nullptr) return;
    sampler->resume(static_cast<std::size_t>(committed.epoch),
                    static_cast<std::size_t>(committed.in_epoch));
  }

  /// Collective: a backup of the last commit.
  void back_up() {
    backup->make(membership().generation, committed.progress,
                 {small_parts(), parts.data != nullptr ? *parts.data : "",
                  to_bytes(committed.epoch), to_bytes(committed.in_epoch)});
  }

  /// Collective: all ranks go back to the newest backup.
  void restore() {
    const auto restored = backup->restore();
    if (!restored) return share(false);
    std::int64_t reached = 0;
    for (const Position& position : positions(committed))
      reached = std::max(reached, position.progress);
    if (rank() == 0 && reached > restored->version.progress) {
      TORCH_WARN("kolo: elastic::run(): all ranks go on from step ", restored->version.progress,
                 ", the last backup of the sharded optimizer's state; steps up to ", reached,
                 " are made again");
    }
    const auto& [small, data, epoch, in_epoch] = std::tie(
        restored->rest.at(0), restored->rest.at(1), restored->rest.at(2), restored->rest.at(3));
    take_small_parts(small);
    if (parts.data != nullptr) *parts.data = data;
    committed = {.has_state = 1,
                 .progress = restored->version.progress,
                 .epoch = from_bytes<std::int64_t>(epoch),
                 .in_epoch = from_bytes<std::int64_t>(in_epoch)};
    resume_sampler();
  }

  static std::vector<Position> positions(const Position& mine) {
    const torch::Tensor row = torch::tensor(
        {mine.has_state, mine.progress, mine.steps, mine.epoch, mine.in_epoch}, torch::kInt64);
    const torch::Tensor rows = allgather(row.unsqueeze(0));
    std::vector<Position> all;
    for (std::int64_t i = 0; i < rows.size(0); ++i) {
      const auto* const at = rows.const_data_ptr<std::int64_t>() + i * rows.size(1);
      all.push_back({at[0], at[1], at[2], at[3], at[4]});
    }
    return all;
  }

  /// Takes all to the next world, again and again until it stands.
  void enter_next() {
    for (;;) {
      shutdown();
      for (WorldMember* member : members) member->leave_world();
      if (backup) backup->leave_world();
      enter_next_world();
      try {
        // In this order: a DistributedDataParallel begins with rank 0's weights.
        if (backup) {
          backup->enter_world();
          restore();
        } else {
          share(false);
        }
        for (WorldMember* member : members) member->enter_world();
        for (const auto& callback : callbacks) callback();
        steps_at_commit = steps();  // callbacks may change what the program likes
        if (backup) back_up();
        return;
      } catch (const std::exception&) {
        if (!loss()) throw;
      }
    }
  }

  /// Collective. A backup precedes a reset, so that no step is made again then.
  std::int32_t orders() {
    std::int32_t orders = 0;
    if (rank() == 0 && Clock::now() >= asks_at) {
      asks_at = Clock::now() + kAsksEvery;
      if (newcomers() > 0) orders = kReset | kBackUp;
    }
    if (rank() == 0 && backup && size() > 1 && backup->is_due()) orders |= kBackUp;
    if (size() > 1) broadcast_ordered(&orders, 1, DataType::kInt32, 0);
    return orders;
  }
};

State::State(const CheckpointParts& parts, std::vector<WorldMember*> members)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.parts = parts;
  impl.modules = all_of(parts.module, parts.modules);
  impl.schedulers = all_of(parts.scheduler, parts.schedulers);
  if (parts.sampler != nullptr) {
    impl.sampler = dynamic_cast<RankSampler*>(parts.sampler);
    if (impl.sampler == nullptr) {
      raise(ErrorCode::kInvalidArgument,
            "elastic::State: the sampler does not know the ranks; use kolo::DistributedSampler or "
            "kolo::ElasticSampler");
    }
  }
  impl.members = std::move(members);
  for (torch::optim::Optimizer* optimizer : all_of(parts.optimizer, parts.optimizers)) {
    refuse_spread(*optimizer);
    if (dynamic_cast<ShardedState*>(optimizer) != nullptr) {
      impl.sharded.push_back(optimizer);
      continue;
    }
    impl.optimizers.push_back(optimizer);
    if (auto* const member = dynamic_cast<WorldMember*>(optimizer)) impl.members.push_back(member);
  }
  if (!impl.sharded.empty()) impl.backup.emplace(impl.modules, impl.optimizers, impl.sharded);
  if (impl.sampler != nullptr)
    impl.committed.epoch = static_cast<std::int64_t>(impl.sampler->epoch());
  impl.note();
}

State::~State() = default;

std::int64_t State::epoch() const { return impl_->committed.epoch; }

void State::set_epoch(std::int64_t epoch) {
  impl_->committed.epoch = epoch;
  impl_->set_epoch();
  impl_->note();
}

void State::next_epoch() {
  ++impl_->committed.progress;
  set_epoch(epoch() + 1);
  impl_->committed.in_epoch = 0;
}

void State::commit() {
  ++impl_->committed.progress;
  impl_->note();
  if (!impl_->is_running) return;
  const std::int32_t orders = impl_->orders();
  if ((orders & kBackUp) != 0 && impl_->backup) impl_->back_up();
  if ((orders & kReset) != 0) throw Reset();
}

std::uint64_t State::progress() const {
  return static_cast<std::uint64_t>(impl_->committed.progress);
}

int State::generation() const { return membership().generation; }

void State::on_reset(std::function<void()> callback) {
  impl_->callbacks.push_back(std::move(callback));
}

void run(State& state, const std::function<void()>& train) {
  State::Impl& impl = *state.impl_;
  static_cast<void>(newcomers());  // from now on this program goes on
  const Membership first = membership();
  if (!first.is_elastic) {
    if (rank() == 0 && size() > 1) {
      TORCH_WARN("kolo: elastic::run(): the loss of a rank ends this job: ", why_not_elastic());
    }
    impl.share(true);
    return train();
  }
  struct Running {
    bool& is;
    explicit Running(bool& flag) : is(flag) { is = true; }
    ~Running() { is = false; }
  } const running(impl.is_running);
  bool enters = first.generation == 0;
  if (enters) {
    impl.committed.has_state = 0;
    // A process's first archive takes some 15 ms. The others train now, and wait later.
    impl.take_small_parts(impl.small_parts());
  }
  int futile = 0;
  std::int64_t progress = impl.committed.progress;
  int members = 0;
  for (;;) {
    try {
      if (enters) {
        impl.enter_next();
      } else {
        impl.share(true);
        if (impl.backup) impl.back_up();
      }
      enters = true;
      members = size();
      progress = std::min(progress, impl.committed.progress);  // where all went back to a backup
      train();
      return;
    } catch (const Reset&) {
      // All ranks are here.
    } catch (const std::exception&) {
      const auto lost = loss();
      const bool has_moved = impl.committed.progress > progress || (lost && size() != members);
      futile = has_moved ? 0 : futile + 1;
      progress = impl.committed.progress;
      if (!lost || futile == kMostFutile) throw;
      enters = true;
      TORCH_WARN("kolo: elastic::run(): ", lost->message, "; going on with the others",
                 impl.backup ? "" : " from step " + std::to_string(impl.committed.progress));
    }
  }
}

}  // namespace kolo::elastic
