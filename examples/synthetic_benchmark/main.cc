// synthetic_benchmark: images per second of a ResNet that trains on random images. Flags and report
// are those of Horovod's pytorch_synthetic_benchmark, so that the numbers can be compared.
#include "examples/common/failure.h"
#include "examples/common/options.h"
#include "examples/synthetic_benchmark/resnet.h"

#include <fmt/format.h>
#include <kolo/torch.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <exception>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace synthetic {
namespace {

struct Flags {
  std::string model = "resnet50";
  std::int64_t batch_size = 32;  ///< images per rank and step
  std::int64_t image_size = 224;
  int warmup_batches = 10;
  int batches_per_iteration = 10;
  int iterations = 10;
  bool fp16_allreduce = false;
  std::string device = "auto";  ///< as kolo::device() takes it
  int threads = 1;              ///< compute threads per rank
  std::string json_file;        ///< empty: none
};

/// Mean over the iterations, and 1.96 standard deviations, as Horovod reports them.
struct Spread {
  double mean = 0;
  double deviation = 0;
};

Spread spread_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, 1.96 * std::sqrt(squares / count)};
}

void write_json(const Flags& flags, const std::vector<double>& rates, const Spread& spread) {
  std::ofstream out(flags.json_file);
  const nlohmann::json report = {{"model", flags.model},
                                 {"ranks", kolo::size()},
                                 {"threads", flags.threads},
                                 {"batch_size", flags.batch_size},
                                 {"image_size", flags.image_size},
                                 {"fp16_allreduce", flags.fp16_allreduce},
                                 {"images_per_second_per_rank", rates},
                                 {"mean", spread.mean},
                                 {"deviation_1.96_sigma", spread.deviation}};
  out << report.dump(2) << '\n';
  out.close();
  if (!out) throw std::runtime_error(fmt::format("{}: cannot be written", flags.json_file));
}

int benchmark(const Flags& flags, int argc, char** argv) {
  kolo::init(argc, argv);
  const bool good = examples::succeed_on_all("synthetic_benchmark", [&] {
    if (kolo::speaks() && !flags.json_file.empty()) examples::check_writable(flags.json_file);
  });
  if (!good) return 1;
  const torch::Device device = kolo::device(flags.device);
  torch::set_num_threads(flags.threads);
  torch::manual_seed(static_cast<std::uint64_t>(kolo::rank()));

  ResNet network(flags.model == "resnet18" ? 18 : 50);
  network->to(device);
  kolo::DistributedOptimizerOptions options;
  if (flags.fp16_allreduce) options.compression = kolo::compression::fp16();
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(network->parameters(), 0.01),
                                       network->named_parameters(), options);
  kolo::broadcast_parameters(*network, /*root=*/0);

  const torch::Tensor images =
      torch::randn({flags.batch_size, 3, flags.image_size, flags.image_size}).to(device);
  const torch::Tensor labels =
      torch::randint(1000, {flags.batch_size}, torch::TensorOptions(torch::kInt64)).to(device);
  const auto train = [&](int batches) {
    for (int i = 0; i < batches; ++i) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(network->forward(images), labels).backward();
      optimizer.step();
    }
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  };

  kolo::print("Model: ", flags.model, ", ", parameter_count(*network), " parameters");
  kolo::print("Batch size: ", flags.batch_size, " per rank, images of ", flags.image_size, "×",
              flags.image_size);
  kolo::print("Number of ranks: ", kolo::size(), ", ", flags.threads, " thread(s) each");
  kolo::print("Running warmup...");
  train(flags.warmup_batches);
  kolo::print("Running benchmark...");
  std::vector<double> rates;
  for (int i = 0; i < flags.iterations; ++i) {
    const auto start = std::chrono::steady_clock::now();
    train(flags.batches_per_iteration);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    const auto done = static_cast<double>(flags.batch_size * flags.batches_per_iteration);
    rates.push_back(done / time.count());
    kolo::print(fmt::format("Iter #{}: {:.1f} img/sec per rank", i, rates.back()));
  }

  if (!kolo::speaks()) return 0;
  const Spread spread = spread_of(rates);
  if (!flags.json_file.empty()) write_json(flags, rates, spread);
  kolo::print(fmt::format("Img/sec per rank: {:.1f} +-{:.1f}", spread.mean, spread.deviation));
  kolo::print(fmt::format("Total img/sec on {0} rank(s): {1:.1f} +-{2:.1f}", kolo::size(),
                          kolo::size() * spread.mean, kolo::size() * spread.deviation));
  return 0;
}

}  // namespace
}  // namespace synthetic

int main(int argc, char** argv) {
  synthetic::Flags flags;
  CLI::App app("Measures how many random images per second a ResNet trains on.");
  app.footer(
      "examples:\n"
      "  synthetic_benchmark --batch-size 8 --num-iters 3\n"
      "  mpirun -np 2 synthetic_benchmark\n"
      "  mpirun -np 4 synthetic_benchmark --fp16-allreduce --json resnet50.json\n"
      "  mpirun -np 2 synthetic_benchmark --model resnet18 --image-size 64 --batch-size 4");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", flags.model, "The network")
      ->check(CLI::IsMember({"resnet18", "resnet50"}));
  app.add_option("--batch-size", flags.batch_size, "Images per rank and step")
      ->check(examples::whole(1));
  app.add_option("--image-size", flags.image_size, "Height and width of an image")
      ->check(CLI::Range(32, 4096));
  app.add_option("--num-warmup-batches", flags.warmup_batches, "Steps that are not measured")
      ->check(examples::whole(0));
  app.add_option("--num-batches-per-iter", flags.batches_per_iteration, "Steps per measurement")
      ->check(examples::whole(1));
  app.add_option("--num-iters", flags.iterations, "Measurements")->check(examples::whole(1));
  app.add_flag("--fp16-allreduce", flags.fp16_allreduce, "Gradients travel as float16");
  app.add_option("--device", flags.device, "auto (a GPU where there is one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--threads", flags.threads, "Compute threads per rank")
      ->check(examples::whole(1, 1024));
  app.add_option("--json", flags.json_file, "Write the measurements, as JSON");
  app.callback([&] {
    // Such a batch leaves one value per channel to the last normalisation, which needs more.
    if (flags.image_size == 32 && flags.batch_size < 2)
      throw CLI::ValidationError("--batch-size", "images of 32 x 32 take batches of 2 or more");
  });
  if (const auto status = examples::parse(app, argc, argv)) return *status;
  try {
    return synthetic::benchmark(flags, argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", examples::failure_line("synthetic_benchmark", error));
    return 1;
  }
}
