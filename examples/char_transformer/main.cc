// char_transformer: trains a small GPT that continues a text. With --zero, the optimizer's state is
// split over the ranks (ZeRO stage 1). Start: mpirun -np 2 char_transformer --text README.md
#include "examples/char_transformer/model.h"
#include "examples/char_transformer/text.h"
#include "examples/common/failure.h"
#include "examples/common/options.h"

#include <fmt/format.h>
#include <kolo/torch.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <exception>

namespace char_transformer {
namespace {

struct Flags {
  std::string text;
  ModelOptions model;
  std::int64_t batch_size = 16;  ///< stretches of text, per rank
  int steps = 200;
  int report_every = 20;
  double learning_rate = 1e-3;
  bool zero = false;
  std::int64_t generate = 0;  ///< characters to write after training
  std::uint64_t seed = 1;
  int threads = 1;
};

/// Starts with a random character of the text and appends `count` characters, each sampled from the
/// model's probabilities.
std::string generated(Gpt& model, const Text& text, std::int64_t count) {
  const torch::NoGradGuard no_grad;
  torch::Tensor numbers = text.stretches(1, 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t seen = std::min(numbers.size(1), model->context());
    const auto logits = model->forward(numbers.slice(1, numbers.size(1) - seen));
    const auto next = torch::multinomial(torch::softmax(logits.select(1, -1), 1), 1);
    numbers = torch::cat({numbers, next}, 1);
  }
  return text.spelt(numbers[0]);
}

/// `optimizer` is a DistributedOptimizer or a ShardedOptimizer: the loop is the same.
template <class Optimizer>
void train(const Flags& flags, const Text& text, Gpt& model, Optimizer& optimizer) {
  using Clock = std::chrono::steady_clock;
  // Each rank draws stretches of its own.
  torch::manual_seed(flags.seed + 1 + static_cast<std::uint64_t>(kolo::rank()));
  double loss_sum = 0;
  int steps = 0;
  double mean = 0;
  double speed = 0;
  Clock::time_point start = Clock::now();
  for (int step = 1; step <= flags.steps; ++step) {
    const auto stretch = text.stretches(flags.batch_size, flags.model.context + 1);
    optimizer.zero_grad();
    const auto logits = model->forward(stretch.slice(1, 0, -1));
    auto loss = torch::cross_entropy_loss(logits.flatten(0, 1), stretch.slice(1, 1).flatten());
    loss.backward();
    optimizer.clip_grad_norm(1.0);
    optimizer.step();
    loss_sum += loss.template item<double>();
    ++steps;
    if (step % flags.report_every != 0 && step != flags.steps) continue;
    mean = kolo::metric_average(loss_sum / steps, "loss");
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto tokens = steps * flags.batch_size * flags.model.context * kolo::size();
    speed = static_cast<double>(tokens) / seconds;
    kolo::print(
        fmt::format("step {}/{}: loss {:.4f}, {:.0f} tokens/s", step, flags.steps, mean, speed));
    loss_sum = 0;
    steps = 0;
    start = Clock::now();
  }
  if (flags.generate > 0 && kolo::rank() == 0) {
    fmt::print("{}\n", generated(model, text, flags.generate));
  }
  kolo::print(fmt::format("Loss: {:.4f}, {:.0f} tokens/s, {:.2f} MiB of optimizer state on rank 0",
                          mean, speed,
                          static_cast<double>(kolo::state_bytes(optimizer)) / (1024 * 1024)));
}

void run(Flags flags) {
  const Text text(flags.text, flags.model.context + 1);
  if (text.replaced() > 0) {
    kolo::print(fmt::format("{} bytes of {} are not UTF-8 and read as U+FFFD; iconv converts them",
                            text.replaced(), flags.text));
  }
  flags.model.characters = text.characters();
  Gpt model(flags.model);
  kolo::broadcast_parameters(*model, /*root=*/0);
  std::int64_t parameters = 0;
  for (const auto& parameter : model->parameters()) parameters += parameter.numel();
  kolo::print(fmt::format("{} characters of {} kinds, {} parameters", text.size(),
                          text.characters(), parameters));
  torch::optim::AdamW adam(model->parameters(), flags.learning_rate);
  if (flags.zero) {
    kolo::ShardedOptimizer optimizer(std::move(adam), model->named_parameters());
    train(flags, text, model, optimizer);
  } else {
    kolo::DistributedOptimizer optimizer(std::move(adam), model->named_parameters());
    train(flags, text, model, optimizer);
  }
}

}  // namespace
}  // namespace char_transformer

int main(int argc, char** argv) {
  char_transformer::Flags flags;
  CLI::App app("A small GPT learns to go on with a text.");
  app.footer(
      "examples:\n  char_transformer --text README.md --generate 200\n"
      "  mpirun -np 2 char_transformer --text README.md --zero --layers 4 --width 256");
  app.option_defaults()->always_capture_default();
  app.add_option("--text", flags.text, "The file to learn, the same on every rank")->required();
  app.add_option("--context", flags.model.context, "Characters that the model sees")
      ->check(examples::whole(1));
  app.add_option("--width", flags.model.width, "Of the model; a multiple of --heads")
      ->check(examples::whole(1));
  app.add_option("--heads", flags.model.heads, "Of each attention")->check(examples::whole(1));
  app.add_option("--layers", flags.model.layers, "Blocks")->check(examples::whole(1));
  app.add_option("--batch-size", flags.batch_size, "Stretches of text per rank and step")
      ->check(examples::whole(1));
  app.add_option("--steps", flags.steps, "Of training")->check(examples::whole(1));
  app.add_option("--report-every", flags.report_every, "Steps")->check(examples::whole(1));
  app.add_option("--lr", flags.learning_rate, "AdamW's learning rate")->check(examples::positive());
  app.add_flag("--zero", flags.zero, "Split the optimizer's state over the ranks");
  app.add_option("--generate", flags.generate, "Characters to write at the end")
      ->check(examples::whole(0));
  app.add_option("--seed", flags.seed, "Of the weights and the stretches");
  app.add_option("--threads", flags.threads, "Compute threads per rank")
      ->check(examples::whole(1, 1024));
  app.callback([&flags] {
    if (flags.model.width % flags.model.heads != 0) {
      throw CLI::ValidationError("--width", fmt::format("{} is no multiple of --heads {}",
                                                        flags.model.width, flags.model.heads));
    }
  });
  if (const auto status = examples::parse(app, argc, argv)) return *status;
  try {
    torch::set_num_threads(flags.threads);
    torch::manual_seed(flags.seed);
    kolo::init(argc, argv);
    char_transformer::run(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", examples::failure_line("char_transformer", error));
    return 1;
  }
  return 0;
}
