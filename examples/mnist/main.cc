// mnist: the network of PyTorch's MNIST example, trained on one or several ranks. The lines marked
// "kolo:" are what kolo changes in a trainer. Flags, digits, network and output are in the other
// files of this folder.
#include "examples/common/failure.h"
#include "examples/mnist/digits.h"
#include "examples/mnist/evaluation.h"
#include "examples/mnist/flags.h"
#include "examples/mnist/network.h"
#include "examples/mnist/report.h"

#include <fmt/format.h>
#include <kolo/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace mnist {
namespace {

/// The host's cores divided by its ranks, but no more than this process may use.
int default_threads() {
  const int usable = static_cast<int>(std::thread::hardware_concurrency());
  const int of_host = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(usable, of_host / kolo::local_size()));
}

struct Data {
  Digits train;
  Digits test;
};

/// Both sets. std::nullopt if a rank cannot read its own, or if rank 0 could not write its files
/// later; the first rank that failed has printed one line.
std::optional<Data> load(const Flags& flags) {
  Data data;
  const bool good = examples::succeed_on_all("mnist", [&] {
    const std::filesystem::path folder =
        flags.data.empty() ? default_data_folder() : std::filesystem::path(flags.data);
    data = {load_digits(folder, "train"), load_digits(folder, "t10k")};
    if (kolo::rank() != 0) return;
    for (const std::string& file : {flags.losses_file, flags.report_file}) {
      if (!file.empty()) examples::check_writable(file);
    }
  });
  return good ? std::optional(std::move(data)) : std::nullopt;
}

/// Sums each step's loss over the ranks.
std::vector<double> sum_over_ranks(const std::vector<double>& losses) {
  const torch::Tensor sums = kolo::allreduce(torch::tensor(losses, torch::kFloat64));
  const auto* const first = sums.data_ptr<double>();
  return {first, first + sums.numel()};
}

int train(const Flags& flags, int argc, char** argv) {
  kolo::init(argc, argv);                                   // kolo: finds the other ranks
  const torch::Device device = kolo::device(flags.device);  // kolo: by local rank
  const bool speaks = kolo::rank() == 0;
  const int threads = flags.threads > 0 ? flags.threads : default_threads();
  torch::set_num_threads(threads);
  torch::manual_seed(flags.seed);

  const std::optional<Data> data = load(flags);
  if (!data) return 1;
  const std::int64_t images = static_cast<std::int64_t>(data->train.count());
  const std::int64_t global_batch =
      flags.batch_size > 0 ? flags.batch_size * kolo::size() : flags.global_batch;

  // kolo: this rank's share of each global batch
  kolo::DistributedSampler sampler(
      data->train.count(),
      {.seed = flags.seed, .global_batch = static_cast<std::size_t>(global_batch)});
  const auto steps_per_epoch = static_cast<std::int64_t>(sampler.num_global_batches());
  auto loader = torch::data::make_data_loader(DigitDataset(data->train), sampler,
                                              torch::data::DataLoaderOptions());

  Network network(flags.dropout);
  network->to(device);
  // kolo: the optimizer averages gradients over the ranks while backward still runs
  kolo::DistributedOptimizer optimizer(
      torch::optim::AdamW(network->parameters(), flags.learning_rate), network->named_parameters());
  kolo::broadcast_parameters(*network, /*root=*/0);  // kolo: all start from the same weights
  // From here on each rank has its own random numbers for dropout.
  torch::manual_seed(flags.seed + static_cast<std::uint64_t>(kolo::rank()) * 7919);

  if (speaks) {
    fmt::print("{} training and {} test images, global batch {}, {} rank(s), {} thread(s) each\n",
               images, data->test.count(), global_batch, kolo::size(), threads);
  }
  Progress progress(flags.progress, flags.epochs);
  Run run{kolo::size(), threads, global_batch, {}, false};
  std::int64_t step = 0;
  const auto is_last = [&] { return flags.max_steps > 0 && step >= flags.max_steps; };
  for (int epoch = 1; epoch <= flags.epochs && !is_last(); ++epoch) {
    sampler.set_epoch(static_cast<std::size_t>(epoch));  // kolo: another order
    network->train();
    std::vector<double> losses;  // this rank's part of each step's loss
    std::vector<double> step_seconds;
    std::int64_t done = 0;
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const auto rate = [&] { return static_cast<double>(done) / seconds(); };
    auto batch = loader->begin();
    for (std::int64_t i = 0; i < steps_per_epoch && !is_last(); ++i, ++step) {
      // Shares differ by one image if the number of ranks does not divide the batch. Each rank's
      // loss is its part of the mean over the whole batch, times the number of ranks, because the
      // average of the gradients divides by this number.
      const auto count = static_cast<double>(std::min(global_batch, images - i * global_batch));
      const double begin = seconds();
      optimizer.zero_grad();
      losses.push_back(0);
      if (batch != loader->end()) {
        const torch::Tensor output = network->forward(batch->data.to(device));
        const torch::Tensor loss =
            torch::nll_loss(output, batch->target.to(device), {}, at::Reduction::Sum) / count;
        (loss * kolo::size()).backward();
        losses.back() = loss.item<double>();
        ++batch;
      }
      // The last batch may be too small for every rank to have a share. A rank without one still
      // steps with the others.
      optimizer.step();
      step_seconds.push_back(seconds() - begin);
      done += static_cast<std::int64_t>(count);
      if (speaks)
        progress.show(epoch, i + 1, steps_per_epoch, losses.back() * kolo::size(), rate());
    }
    const double images_per_second = rate();
    losses = sum_over_ranks(losses);
    const auto steps = static_cast<std::int64_t>(losses.size());
    double mean = 0;
    for (std::int64_t i = 0; i < steps; ++i) {
      mean += losses[static_cast<std::size_t>(i)] *
              static_cast<double>(std::min(global_batch, images - i * global_batch));
    }
    mean /= static_cast<double>(done);
    const Score score = evaluate(network, data->test, device);
    run.epochs.push_back({epoch, steps, mean, score.loss, score.accuracy, images_per_second,
                          std::move(step_seconds)});
    if (!speaks) continue;
    progress.finish(run.epochs.back());
    if (!flags.losses_file.empty()) {
      append_losses(flags.losses_file, step - steps + 1, epoch, losses);
    }
  }

  const std::vector<std::uint64_t> hashes = parameter_hashes(*network);
  run.identical_parameters = std::equal(hashes.begin() + 1, hashes.end(), hashes.begin());
  if (speaks) {
    fmt::print("parameters: {} on all {} rank(s), hash {:016x}\n",
               run.identical_parameters ? "bit-identical" : "NOT the same", hashes.size(),
               hashes.front());
    if (!flags.report_file.empty()) write_report(flags, run);
    fmt::print("Accuracy: {:.2f} %\n", 100 * run.epochs.back().accuracy);
  }
  return run.identical_parameters ? 0 : 1;
}

}  // namespace
}  // namespace mnist

int main(int argc, char** argv) {
  mnist::Flags flags;
  if (const auto status = mnist::parse(argc, argv, flags)) return *status;
  try {
    const auto train = [&] { return mnist::train(flags, argc, argv); };
    return flags.spawn > 0 ? kolo::spawn(flags.spawn, train) : train();  // kolo: or by kolo-run
  } catch (const std::exception& exception) {
    fmt::print(stderr, "{}\n", examples::failure_line("mnist", exception));
    return 1;
  }
}
