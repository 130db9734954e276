// A training job that knows what is right: the sums of each step, and the weights at the end, which
// it also computes alone. tests/chaos/chaos starts it by kolo-run and disturbs it.
//
//   kolo-run -np 3 --min-np 1 --restarts 9 chaos_worker --epochs 20
//
// It prints a line with the time when a process can train ("ready …"), a world stands ("world …"),
// a world loses a rank ("lost …") or takes newcomers ("left …"), and an epoch ends ("at …"); "done
// …" at the end. At the next step SIGUSR1 makes it exit, SIGUSR2 throw, SIGRTMIN run out of memory.
#include <kolo/torch.h>

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kSamples = 120;
constexpr std::size_t kBatch = 12;
constexpr std::int64_t kInputs = 8;
constexpr double kRate = 0.02;
constexpr double kMomentum = 0.9;
/// How far weights may be off, by roundings: a step that is lost or made twice changes them by
/// more.
constexpr double kTolerance = 2e-4;

volatile std::sig_atomic_t asked = 0;
void ask(int signal) { asked = signal; }

struct Flags {
  std::int64_t epochs = 10;
  int milliseconds = 20;  ///< time of each step
  bool ddp = false;
  bool sharded = false;   ///< a ShardedOptimizer of Adam
  bool lose_two = false;  ///< rank 1 and the keeper of its part are lost at once
  bool samples = false;   ///< with an ElasticSampler: counts how often each sample has come
  std::string end;        ///< training ends with the epoch in which there is a file of this name
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--ddp") {
      flags.ddp = true;
    } else if (name == "--sharded") {
      flags.sharded = true;
    } else if (name == "--lose-two") {
      flags.lose_two = true;
    } else if (name == "--samples") {
      flags.samples = true;
    } else if (name == "--epochs" && i + 1 < argc) {
      flags.epochs = std::atoll(argv[++i]);
    } else if (name == "--step-ms" && i + 1 < argc) {
      flags.milliseconds = std::atoi(argv[++i]);
    } else if (name == "--end" && i + 1 < argc) {
      flags.end = argv[++i];
    } else {
      throw std::invalid_argument(
          "usage: chaos_worker [--epochs N] [--end FILE] [--step-ms N] [--ddp] [--sharded] "
          "[--lose-two | --samples]; not '" +
          name + "'");
    }
  }
  return flags;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

torch::Tensor inputs_of(const std::vector<std::size_t>& samples) {
  torch::Tensor inputs = torch::empty({static_cast<std::int64_t>(samples.size()), kInputs});
  for (std::size_t i = 0; i < samples.size(); ++i)
    for (std::int64_t j = 0; j < kInputs; ++j)
      inputs[static_cast<std::int64_t>(i)][j] =
          static_cast<double>((samples[i] * 37 + static_cast<std::size_t>(j) * 11) % 64) / 64 - 0.5;
  return inputs;
}

/// Linear in the weights, so that what any sample has added to them stays for ever.
torch::Tensor loss_of(const torch::Tensor& outputs, const torch::Tensor& inputs) {
  return (outputs * inputs.sum(1, true).sin()).mean();
}

torch::nn::Linear make_model() {
  torch::manual_seed(7);
  return torch::nn::Linear(kInputs, 1);
}

torch::optim::SGDOptions sgd() { return torch::optim::SGDOptions(kRate).momentum(kMomentum); }

torch::optim::AdamOptions adam() { return torch::optim::AdamOptions(kRate); }

std::unique_ptr<torch::optim::Optimizer> plain_optimizer(const Flags& flags,
                                                         const torch::nn::Linear& model) {
  if (flags.sharded) return std::make_unique<torch::optim::Adam>(model->parameters(), adam());
  return std::make_unique<torch::optim::SGD>(model->parameters(), sgd());
}

torch::Tensor weights_of(const torch::nn::Linear& model) {
  return torch::cat({model->weight.flatten(), model->bias}).detach();
}

/// The weights of one undisturbed process. What a sample adds to the gradient does not depend on
/// the weights, so newcomers compute those of many steps in no time.
class Reference {
 public:
  explicit Reference(const Flags& flags) : optimizer_(plain_optimizer(flags, model_)) {
    std::vector<std::size_t> all(kSamples);
    std::iota(all.begin(), all.end(), 0);
    const torch::Tensor inputs = inputs_of(all);
    const torch::Tensor outer = inputs.sum(1, true).sin() / static_cast<double>(kBatch);
    gradients_ = torch::cat({inputs * outer, outer}, 1);
  }

  /// By State::progress().
  const torch::Tensor& at(std::uint64_t progress) {
    while (weights_.size() <= progress) advance();
    return weights_[progress];
  }

 private:
  void advance() {
    if (const auto samples = sampler_.next(1)) {
      const std::vector<std::int64_t> rows(samples->begin(), samples->end());
      const torch::Tensor gradient = gradients_.index_select(0, torch::tensor(rows)).sum(0);
      model_->weight.mutable_grad() = gradient.narrow(0, 0, kInputs).unsqueeze(0);
      model_->bias.mutable_grad() = gradient.narrow(0, kInputs, 1);
      optimizer_->step();
    } else {  // the end of an epoch is progress, too
      sampler_.set_epoch(++epoch_);
      sampler_.reset();
    }
    weights_.push_back(weights_of(model_));
  }

  torch::nn::Linear model_ = make_model();
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  kolo::DistributedSampler sampler_{kSamples, {.global_batch = kBatch, .rank = 0, .size = 1}};
  std::size_t epoch_ = 0;
  torch::Tensor gradients_;  ///< a row for each sample
  std::vector<torch::Tensor> weights_ = {weights_of(model_)};
};

[[noreturn]] void end_wrong(const std::string& what) {
  std::printf("WRONG: %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(99);
}

/// Ranks 0 and 1, 2 and 3, and so on, in each world.
kolo::ProcessSet split_into_pairs() {
  return kolo::split_world([](const kolo::RankPlace& place) { return place.rank / 2; });
}

void check_sum(std::uint64_t progress, const kolo::ProcessSet& pair) {
  const auto step = static_cast<std::int64_t>(progress);
  const std::int64_t first = kolo::rank() / 2 * 2;
  const std::int64_t of_pair = first + 1 + (first + 1 < kolo::size() ? first + 2 : 0);
  torch::Tensor mine = torch::full({1}, kolo::rank() + 1, torch::kInt64);
  kolo::allreduce_(mine, {.name = "pair", .process_set = pair});
  if (mine.item<std::int64_t>() != of_pair) {
    end_wrong("a pair's sum is " + std::to_string(mine.item<std::int64_t>()) + ", not " +
              std::to_string(of_pair));
  }
  torch::Tensor sum = torch::full({3}, (kolo::rank() + 1) * (step + 1), torch::kInt64);
  kolo::allreduce_(sum, {.name = "check"});
  const std::int64_t n = kolo::size();
  const std::int64_t right = n * (n + 1) / 2 * (step + 1);
  if ((sum != right).any().item<bool>()) {
    end_wrong("a sum is " + std::to_string(sum[0].item<std::int64_t>()) + ", not " +
              std::to_string(right));
  }
}

/// Has no more memory than now, and needs some.
void exhaust_memory() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const rlimit limit = {bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) end_wrong("there is no limit of memory");
  for (std::vector<torch::Tensor> kept;;) kept.push_back(torch::ones({1 << 20}));
}

void take_signal() {
  if (asked == SIGUSR1) std::exit(3);
  if (asked == SIGUSR2) throw std::runtime_error("an exception of this rank's own");
  if (asked == SIGRTMIN) exhaust_memory();
}

/// On one host, of more than two ranks.
void lose_two() {
  const auto pids = kolo::allgather_object<std::int64_t>(getpid());
  if (kolo::rank() != 1) return;
  kill(static_cast<pid_t>(pids.at(2)), SIGKILL);
  std::raise(SIGKILL);
}

void say(const char* what, const kolo::elastic::State& state) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  std::printf("%s %d: pid %d on %s is rank %d of %d at %llu, %.6f\n", what, state.generation(),
              getpid(), host.data(), kolo::rank(), kolo::size(),
              static_cast<unsigned long long>(state.progress()), now());
  std::fflush(stdout);
}

/// Calls `epoch` until it returns false, in one world after the other.
void train(kolo::elastic::State& state, const Flags& flags, const kolo::ProcessSet& pair,
           const std::function<void()>& epoch) {
  say("ready", state);
  kolo::elastic::run(state, [&] {
    check_sum(state.progress(), pair);
    say("world", state);
    try {
      while (state.epoch() < flags.epochs &&
             !kolo::any(!flags.end.empty() && std::filesystem::exists(flags.end))) {
        epoch();
        state.next_epoch();
        say("at", state);
      }
    } catch (const std::exception&) {
      say("lost", state);
      throw;
    } catch (...) {  // elastic::run() takes newcomers in
      say("left", state);
      throw;
    }
  });
}

int compare_weights(const Flags& flags) {
  const kolo::ProcessSet pair = split_into_pairs();
  torch::nn::Linear model = make_model();
  std::optional<kolo::DistributedDataParallel<torch::nn::Linear>> ddp;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  kolo::DistributedOptimizer<torch::optim::SGD>* reducing = nullptr;
  std::vector<kolo::WorldMember*> members;
  if (flags.ddp) {
    ddp.emplace(model, kolo::DdpOptions{.weigh_by_samples = true});
    members.push_back(&*ddp);
  }
  if (flags.sharded) {
    optimizer = std::make_unique<kolo::ShardedOptimizer<torch::optim::Adam>>(
        torch::optim::Adam(model->parameters(), adam()), model->named_parameters(),
        kolo::ShardedOptimizerOptions{.op = kolo::ReduceOp::kSum,
                                      .gradients_are_reduced = flags.ddp});
  } else if (flags.ddp) {
    optimizer = plain_optimizer(flags, model);
  } else {
    auto made = std::make_unique<kolo::DistributedOptimizer<torch::optim::SGD>>(
        torch::optim::SGD(model->parameters(), sgd()), model->named_parameters(),
        kolo::DistributedOptimizerOptions{.weigh_by_samples = true});
    reducing = made.get();
    optimizer = std::move(made);
  }
  kolo::DistributedSampler sampler(kSamples, {.global_batch = kBatch});
  kolo::elastic::State state(
      {.module = model.get(), .optimizer = optimizer.get(), .sampler = &sampler}, members);

  Reference right(flags);
  const auto error_at = [&](std::uint64_t progress) {
    const double error = (weights_of(model) - right.at(progress)).abs().max().item<double>();
    if (error < kTolerance) return error;
    end_wrong("rank " + std::to_string(kolo::rank()) + " is off by " + std::to_string(error) +
              " at step " + std::to_string(progress) + " in world " +
              std::to_string(state.generation()));
  };
  const auto step = [&](const std::vector<std::size_t>& samples) {
    const torch::Tensor inputs = inputs_of(samples);
    const auto count = static_cast<std::int64_t>(samples.size());
    if (reducing != nullptr) {
      reducing->zero_grad();
      reducing->set_sample_count(count);
      loss_of(model(inputs), inputs).backward();
    } else if (!ddp) {
      model->zero_grad();  // shares of a batch differ, so this rank's mean counts by its samples
      (loss_of(model(inputs), inputs) * (static_cast<double>(count) / kBatch)).backward();
    } else {
      model->zero_grad();
      ddp->set_sample_count(count);
      loss_of(ddp->forward(inputs), inputs).backward();
    }
    optimizer->step();
  };
  train(state, flags, pair, [&] {
    error_at(state.progress());
    sampler.reset();
    while (const auto samples = sampler.next(1)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(flags.milliseconds));  // the compute
      take_signal();
      if (flags.lose_two && state.generation() == 1 && state.progress() == 5) lose_two();
      step(*samples);
      error_at(state.progress() + 1);
      check_sum(state.progress(), pair);
      state.commit();
    }
  });
  const double error = error_at(state.progress());
  std::printf("done: pid %d is rank %d of %d at %llu, off by %.3g\n", getpid(), kolo::rank(),
              kolo::size(), static_cast<unsigned long long>(state.progress()), error);
  std::fflush(stdout);
  return 0;
}

/// An ElasticSampler deals each epoch out, whatever the numbers of ranks. The counts are a buffer
/// of the module, which changes with its step and travels with it.
int count_samples(const Flags& flags) {
  const kolo::ProcessSet pair = split_into_pairs();
  torch::nn::Linear model = make_model();
  torch::Tensor seen = model->register_buffer("seen", torch::zeros({kSamples}, torch::kInt64));
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), sgd()),
                                       model->named_parameters(), {.weigh_by_samples = true});
  kolo::ElasticSampler sampler(kSamples);
  kolo::elastic::State state({.module = model.get(), .optimizer = &optimizer, .sampler = &sampler});
  train(state, flags, pair, [&] {
    sampler.reset();
    for (;;) {
      const auto samples = sampler.next(kBatch / 4);
      if (!kolo::any(samples.has_value())) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(flags.milliseconds));
      take_signal();
      torch::Tensor counts = torch::zeros({kSamples}, torch::kInt64);
      optimizer.zero_grad();
      optimizer.set_sample_count(samples ? static_cast<std::int64_t>(samples->size()) : 0);
      if (samples) {
        for (const std::size_t sample : *samples) counts[static_cast<std::int64_t>(sample)] += 1;
        const torch::Tensor inputs = inputs_of(*samples);
        loss_of(model(inputs), inputs).backward();
      }
      kolo::allreduce_(counts, {.name = "counts"});
      optimizer.step();
      seen.add_(counts);
      state.commit();
    }
    if ((seen != state.epoch() + 1).any().item<bool>()) {
      end_wrong("after epoch " + std::to_string(state.epoch()) + " samples have come " +
                std::to_string(seen.min().item<std::int64_t>()) + " to " +
                std::to_string(seen.max().item<std::int64_t>()) + " times");
    }
  });
  std::printf("done: pid %d is rank %d of %d at %llu, off by 0\n", getpid(), kolo::rank(),
              kolo::size(), static_cast<unsigned long long>(state.progress()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::signal(SIGUSR1, ask);
    std::signal(SIGUSR2, ask);
    std::signal(SIGRTMIN, ask);
    kolo::init(argc, argv);
    at::set_num_threads(1);
    const Flags flags = parse(argc, argv);
    return flags.samples ? count_samples(flags) : compare_weights(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pid %d: %s\n", getpid(), kolo::reason_of(error).c_str());
    return 1;
  }
}
