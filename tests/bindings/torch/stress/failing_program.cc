#include "tests/bindings/torch/stress/failing_program.h"

#include "tests/support/dice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

namespace kolo::test {
namespace {

/// Exceptions of the data set may be wrapped.
template <class Read>
decltype(auto) read(Read&& read_batch) {
  try {
    return read_batch();
  } catch (const std::exception& error) {
    throw Fault(error.what());
  }
}

/// The batch's contents do not matter, only that worker threads read it meanwhile.
class Rows : public torch::data::datasets::BatchDataset<Rows, torch::Tensor> {
 public:
  explicit Rows(FaultyRank& fault) : fault_(&fault) {}
  torch::Tensor get_batch(c10::ArrayRef<std::size_t> indices) override {
    fault_->in_data_set();
    return torch::ones({std::ssize(indices)});
  }
  std::optional<std::size_t> size() const override { return 64; }

 private:
  FaultyRank* fault_;  // a worker has a copy of this
};

class FailingProgram {
 public:
  FailingProgram(const FaultOptions& options, std::uint64_t seed, const Progress& note)
      : rank_(rank()),
        fault_(options, rank_ == options.victim),
        note_(note),
        dice_(seed * 131 + static_cast<std::uint64_t>(rank_)),
        is_out_of_step_(options.fault == "skip" || options.fault == "more"),
        is_late_(options.fault == "late") {}

  int run(const MakeTraining& make);

 private:
  void train(const MakeTraining& make);
  void steps(Training& training);
  void examine(Training& training);
  void end_together() const;
  template <class Action>
  void guard(const std::string& when, Action&& action);
  void say(const std::string& what, int code);

  const int rank_;
  FaultyRank fault_;
  const Progress note_;
  Dice dice_;
  const bool is_out_of_step_;
  const bool is_late_;  ///< one rank
  int code_ = 0;
};

void FailingProgram::say(const std::string& what, int code) {
  std::printf("rank %d: %s\n", rank_, what.c_str());
  std::fflush(stdout);
  code_ = std::max(code_, code);
}

template <class Action>
void FailingProgram::guard(const std::string& when, Action&& action) {
  try {
    action();
  } catch (const Fault&) {
    fault_.end();
  } catch (const Exception& error) {
    say(fmt::format("{}: {}: {}", when, to_string(error.code()), error.what()), 3);
  } catch (const Differs& differs) {
    // Ranks are out of step, so gradients of several steps were averaged.
    say(fmt::format("{}: {} {}", when, is_out_of_step_ ? "differs:" : "WRONG", differs.what()),
        is_out_of_step_ ? 3 : 4);
  } catch (const std::exception& error) {
    say(fmt::format("{}: WRONG exception: {}", when, error.what()), 4);
  }
}

void FailingProgram::examine(Training& training) {
  if (is_out_of_step_) return;
  guard("the end of a join", [&] { training.leave_join(); });
  guard("what is left", [&] { training.check_left(); });
  if (dice_.one_in(2)) guard("going on", [&] { training.go_on(); });
  if (rank_ == 0 || dice_.one_in(2)) guard("saving", [&] { training.save_left(); });
  if (dice_.one_in(2)) guard("going on after it", [&] { training.go_on(); });
}

void FailingProgram::steps(Training& training) {
  fault_.begin(&training);
  const DistributedSampler sampler(64);
  auto loader = data_loader(Rows(fault_), sampler,
                            {.batch_size = 2, .workers = static_cast<std::size_t>(rank_ % 3)});
  for (auto batch = read([&] { return loader.begin(); }); batch != loader.end();
       read([&]() -> auto& { return ++batch; })) {
    fault_.begin_step();
    try {
      if (!training.next() || !fault_.end_step()) return;
    } catch (const Exception& error) {
      if (!fault_.mends()) throw;
      say(fmt::format("step {}: {}: {}", training.steps_done(), to_string(error.code()),
                      error.what()),
          0);
      training.redo();
    }
  }
}

void FailingProgram::train(const MakeTraining& make) {
  const auto training = make([this](const std::string& what) {
    note_(what);
    fault_.at_point();
  });
  try {
    steps(*training);
  } catch (const Exception& error) {
    // Otherwise, destructors run while the exception is on its way.
    if (dice_.one_in(4)) throw;
    say(fmt::format("step {}: {}: {}", training->steps_done(), to_string(error.code()),
                    error.what()),
        3);
    fault_.begin(nullptr);
    examine(*training);
  }
  note_("destructors");
}

/// Once all ranks have come, however late one is.
void FailingProgram::end_together() const {
  for (int tries = is_late_ ? 9 : 0;; --tries) {
    try {
      return barrier({.name = "the end"});
    } catch (const Exception& error) {
      if (error.code() != ErrorCode::kTimeout || tries == 0) throw;
    }
  }
}

int FailingProgram::run(const MakeTraining& make) {
  guard("training", [&] { train(make); });
  if (fault_.has_ended()) return 0;
  // The others learn by this rank's end what they have waited for.
  if (is_out_of_step_ && code_ != 0) {
    say(fmt::format("ended with {}", code_), 0);
    return code_;
  }
  // No rank leaves while another one works. After a failure, the failure reaches every rank.
  guard("the end", [this] { end_together(); });
  say(fmt::format("ended with {}", code_), 0);
  // The starter of this program signals when the other ranks have finished.
  static_cast<void>(std::getchar());
  return code_;
}

}  // namespace

int run_failing(const FaultOptions& options, std::uint64_t seed, const MakeTraining& make,
                const Progress& note) {
  FailingProgram program(options, seed, note);
  return program.run(make);
}

}  // namespace kolo::test
