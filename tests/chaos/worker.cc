// A training job that knows what is right: the sums of each step, and the weights at the end, which
// it also computes alone. tests/chaos/chaos starts it by kolo-run and disturbs it.
//
//   kolo-run -np 3 --min-np 1 --restarts 9 chaos_worker --epochs 20
//
// It prints a line each time a world stands ("world …"), and "done …" at the end. SIGUSR1 makes it
// exit, SIGUSR2 throw, at the next step.
#include <kolo/torch.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

volatile std::sig_atomic_t asked = 0;
void ask(int signal) { asked = signal; }

struct Flags {
  std::int64_t epochs = 10;
  int milliseconds = 20;  ///< time of each step
  bool ddp = false;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--ddp") {
      flags.ddp = true;
    } else if (name == "--epochs" && i + 1 < argc) {
      flags.epochs = std::atoll(argv[++i]);
    } else if (name == "--step-ms" && i + 1 < argc) {
      flags.milliseconds = std::atoi(argv[++i]);
    } else {
      throw std::invalid_argument("usage: chaos_worker [--epochs N] [--step-ms N] [--ddp]; not '" +
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

torch::Tensor loss_of(const torch::Tensor& outputs, const torch::Tensor& inputs) {
  return torch::mse_loss(outputs, inputs.sum(1, true) + 0.3);
}

torch::nn::Linear make_model() {
  torch::manual_seed(7);
  return torch::nn::Linear(kInputs, 1);
}

torch::optim::SGDOptions sgd() { return torch::optim::SGDOptions(kRate).momentum(kMomentum); }

/// The weights that one undisturbed process reaches.
torch::Tensor reference(const Flags& flags) {
  torch::nn::Linear model = make_model();
  torch::optim::SGD optimizer(model->parameters(), sgd());
  kolo::DistributedSampler sampler(kSamples, {.global_batch = kBatch, .rank = 0, .size = 1});
  for (std::int64_t epoch = 0; epoch < flags.epochs; ++epoch) {
    sampler.set_epoch(static_cast<std::size_t>(epoch));
    sampler.reset();
    while (const auto samples = sampler.next(1)) {
      const torch::Tensor inputs = inputs_of(*samples);
      optimizer.zero_grad();
      loss_of(model(inputs), inputs).backward();
      optimizer.step();
    }
  }
  return torch::cat({model->weight.flatten(), model->bias}).detach();
}

void check_sum(std::uint64_t progress) {
  const auto step = static_cast<std::int64_t>(progress);
  torch::Tensor sum = torch::full({3}, (kolo::rank() + 1) * (step + 1), torch::kInt64);
  kolo::allreduce_(sum, {.name = "check"});
  const std::int64_t n = kolo::size();
  const std::int64_t right = n * (n + 1) / 2 * (step + 1);
  if ((sum != right).any().item<bool>()) {
    std::printf("WRONG SUM: %lld, not %lld\n", static_cast<long long>(sum[0].item<std::int64_t>()),
                static_cast<long long>(right));
    std::fflush(stdout);
    std::_Exit(99);
  }
}

void take_signal() {
  if (asked == SIGUSR1) std::exit(3);
  if (asked == SIGUSR2) throw std::runtime_error("an exception of this rank's own");
}

int train(const Flags& flags) {
  torch::nn::Linear model = make_model();
  std::optional<kolo::DistributedDataParallel<torch::nn::Linear>> ddp;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  kolo::DistributedOptimizer<torch::optim::SGD>* reducing = nullptr;
  std::vector<kolo::WorldMember*> members;
  if (flags.ddp) {
    ddp.emplace(model, kolo::DdpOptions{.weigh_by_samples = true});
    optimizer = std::make_unique<torch::optim::SGD>(model->parameters(), sgd());
    members.push_back(&*ddp);
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

  const auto step = [&](const std::vector<std::size_t>& samples) {
    const torch::Tensor inputs = inputs_of(samples);
    const auto count = static_cast<std::int64_t>(samples.size());
    if (reducing != nullptr) {
      reducing->zero_grad();
      reducing->set_sample_count(count);
      loss_of(model(inputs), inputs).backward();
    } else {
      optimizer->zero_grad();
      ddp->set_sample_count(count);
      loss_of(ddp->forward(inputs), inputs).backward();
    }
    optimizer->step();
  };
  kolo::elastic::run(state, [&] {
    check_sum(state.progress());
    std::printf("world %d: pid %d is rank %d of %d at %llu, %.6f\n", state.generation(), getpid(),
                kolo::rank(), kolo::size(), static_cast<unsigned long long>(state.progress()),
                now());
    std::fflush(stdout);
    for (; state.epoch() < flags.epochs; state.next_epoch()) {
      sampler.reset();
      while (const auto samples = sampler.next(1)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(flags.milliseconds));  // the compute
        take_signal();
        step(*samples);
        check_sum(state.progress());
        state.commit();
      }
    }
  });
  const torch::Tensor mine = torch::cat({model->weight.flatten(), model->bias}).detach();
  const double error = (mine - reference(flags)).abs().max().item<double>();
  std::printf("done: pid %d is rank %d of %d at %llu, off by %.3g\n", getpid(), kolo::rank(),
              kolo::size(), static_cast<unsigned long long>(state.progress()), error);
  std::fflush(stdout);
  return error < 1e-5 ? 0 : 98;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::signal(SIGUSR1, ask);
    std::signal(SIGUSR2, ask);
    kolo::init(argc, argv);
    at::set_num_threads(1);
    return train(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pid %d: %s\n", getpid(), kolo::reason_of(error).c_str());
    return 1;
  }
}
