// toy_regression: logistic regression by SGD with binary cross-entropy, on points that a line
// divides. It prints the loss of every batch: the smallest program that shows a loss going down on
// several ranks. Start: mpirun -np 2 toy_regression
#include "examples/common/failure.h"
#include "examples/common/options.h"

#include <fmt/format.h>
#include <kolo/torch.h>
#include <CLI/CLI.hpp>

#include <exception>

namespace {

struct Flags {
  std::int64_t samples = 512;
  std::size_t batch_size = 32;  ///< points per step, all ranks together
  std::size_t epochs = 4;
  double learning_rate = 0.5;
  std::uint64_t seed = 1;
  std::string device = "auto";  ///< as kolo::device() takes it
};

/// Points of the plane, and on which side of a line they are; the same on every rank.
class Points : public torch::data::datasets::Dataset<Points> {
 public:
  Points(std::int64_t count, std::uint64_t seed) {
    torch::manual_seed(seed);
    points_ = torch::randn({count, 2});
    sides_ = (points_.select(1, 0) - 2 * points_.select(1, 1) > 0.5).to(torch::kFloat32);
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {points_[i], sides_[i]};
  }
  std::optional<std::size_t> size() const override { return points_.size(0); }

 private:
  torch::Tensor points_, sides_;
};

void train(const Flags& flags) {
  const torch::Device device = kolo::device(flags.device);
  Points points(flags.samples, flags.seed);
  torch::nn::Linear line(2, 1);
  line->to(device);
  // Each step trains on the same points for any number of ranks, so the losses are the same. A last
  // batch that is not full is dropped: it might leave a rank without a share, and the ranks would
  // be out of step.
  kolo::DistributedSampler sampler(
      points.size().value(),
      {.seed = flags.seed, .drop_last = true, .global_batch = flags.batch_size});
  auto loader = kolo::data_loader(points.map(torch::data::transforms::Stack<>()), sampler);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(line->parameters(), flags.learning_rate),
                                       line->named_parameters(), {.weigh_by_samples = true});
  kolo::broadcast_parameters(*line, /*root=*/0);
  kolo::Meter meter("loss");
  double last = 0;
  for (std::size_t epoch = 0; epoch < flags.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    int number = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const auto output = line->forward(batch.data.to(device)).squeeze(1);
      auto loss = torch::binary_cross_entropy_with_logits(output, batch.target.to(device));
      optimizer.set_sample_count(batch.data.size(0));
      loss.backward();
      optimizer.step();
      meter.reset();
      meter.add(loss.item<double>(), batch.data.size(0));
      last = meter.total().mean();
      kolo::print(fmt::format("epoch {} batch {}: loss {:.4f}", epoch + 1, ++number, last));
    }
  }
  kolo::print(fmt::format("Last loss: {:.4f}", last));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Logistic regression on points of the plane: SGD, and the loss of every batch.");
  app.footer("examples:\n  toy_regression\n  mpirun -np 2 toy_regression --epochs 2 --lr 0.1");
  app.option_defaults()->always_capture_default();
  app.add_option("--samples", flags.samples,
                 "Points, at least a batch; what does not fill the last batch is left out")
      ->check(examples::whole(1));
  app.add_option("--batch-size", flags.batch_size, "Points of a step, on all ranks together")
      ->check(examples::whole(1));
  app.add_option("--epochs", flags.epochs, "Passes over the points")->check(examples::whole(1));
  app.add_option("--lr", flags.learning_rate, "SGD's learning rate")->check(examples::positive());
  app.add_option("--device", flags.device, "auto (a GPU where there is one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--seed", flags.seed, "Of the points, the weights and the order");
  if (const auto status = examples::parse(app, argc, argv)) return *status;
  if (static_cast<std::size_t>(flags.samples) < flags.batch_size) {
    fmt::print(stderr, "toy_regression: --samples {} do not fill a batch of {}\n", flags.samples,
               flags.batch_size);
    return 2;
  }
  try {
    torch::set_num_threads(1);
    torch::manual_seed(flags.seed);
    kolo::init(argc, argv);
    train(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", examples::failure_line("toy_regression", error));
    return 1;
  }
  return 0;
}
