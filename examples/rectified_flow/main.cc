// rectified_flow: learns to draw digits, on one or several ranks. The lines marked "kolo:" show
// what kolo does. Flags, network, flow and pictures are in the other files of this folder.
#include "examples/common/failure.h"
#include "examples/rectified_flow/flags.h"
#include "examples/rectified_flow/flow.h"
#include "examples/rectified_flow/network.h"
#include "examples/rectified_flow/picture.h"

#include <fmt/format.h>
#include <kolo/torch.h>
#include <nlohmann/json.hpp>

#include <exception>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace rectified {
namespace {

namespace fs = std::filesystem;

/// OUTPUT/losses.json, {"losses": [0.51, …]}: one loss per epoch, from the first on.
fs::path losses_file(const Flags& flags) { return flags.output_dir / "losses.json"; }

/// Losses of the `epochs` epochs that earlier runs have trained. Empty if they were not kept, e.g.
/// because the checkpoint lies in another folder.
std::vector<double> earlier_losses(const Flags& flags, std::int64_t epochs) {
  std::ifstream in(losses_file(flags));
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("losses") || !json["losses"].is_array()) return {};
  std::vector<double> losses;
  for (const nlohmann::json& loss : json["losses"]) {
    if (std::cmp_equal(losses.size(), epochs) || !loss.is_number()) break;
    losses.push_back(loss.get<double>());
  }
  return losses;
}

void write_losses(const Flags& flags, const std::vector<double>& losses) {
  std::ofstream out(losses_file(flags));
  out << nlohmann::json{{"losses", losses}}.dump(1) << '\n';
  out.close();
  if (!out)
    throw std::runtime_error(fmt::format("{}: cannot be written", losses_file(flags).string()));
  write_curve(flags.output_dir / "losses.png", losses);
}

/// Draws one row of samples per digit.
void draw_samples(const Flags& flags, Network& network, torch::Device device, std::int64_t epoch) {
  const torch::Tensor digits = torch::arange(kDigits).repeat_interleave(flags.samples).to(device);
  const torch::Tensor images = sample(network, digits, flags.sample_steps, flags.seed).cpu();
  write_grid(flags.output_dir / fmt::format("samples_epoch_{}.png", epoch), images, flags.samples);
}

/// Loads what --checkpoint or --resume asks for; returns the number of epochs that are done.
std::int64_t resume(const Flags& flags, const kolo::CheckpointParts& parts) {
  std::optional<fs::path> path;
  if (!flags.checkpoint.empty()) path = flags.checkpoint;
  if (flags.resume) path = kolo::newest_checkpoint(flags.output_dir);
  if (!path) {
    if (flags.resume) kolo::print("No checkpoint in ", flags.output_dir.string(), ": begins anew");
    return 0;
  }
  const std::int64_t done = kolo::load_checkpoint(*path, parts);
  kolo::print("Goes on after epoch ", done, " of ", path->string());
  return done;
}

int train(const Flags& flags, int argc, char** argv) {
  const fs::path folder = flags.data.empty() ? mnist::default_data_folder() : fs::path(flags.data);
  const mnist::Digits digits = mnist::load_digits(folder, "train");
  kolo::init(argc, argv);                                   // kolo: finds the other ranks
  const torch::Device device = kolo::device(flags.device);  // kolo: by local rank
  torch::set_num_threads(flags.threads);
  torch::manual_seed(flags.seed);
  const bool speaks = kolo::speaks();
  const bool good = examples::succeed_on_all("rectified_flow", [&] {
    if (!speaks) return;
    fs::create_directories(flags.output_dir);
    examples::check_writable(losses_file(flags));
  });
  if (!good) return 1;

  // kolo: this rank's share of each global batch; a smaller last batch is left out
  const std::int64_t global_batch =
      flags.global_batch > 0 ? flags.global_batch : flags.batch_size * kolo::size();
  kolo::DistributedSampler sampler(digits.count(),
                                   {.seed = flags.seed,
                                    .drop_last = true,
                                    .global_batch = static_cast<std::size_t>(global_batch)});
  auto loader = kolo::data_loader(FlowDataset(digits), sampler, {.workers = flags.workers});
  const auto steps = static_cast<std::int64_t>(loader.size());
  if (steps == 0) {
    throw std::invalid_argument(fmt::format(
        "a global batch of {} is more than the {} digits of {}; take a smaller --batch-size",
        global_batch, digits.count(), folder.string()));
  }

  Network network(flags.width, flags.depth);
  network->to(device);
  // kolo: averages gradients while backward runs, weighted by each rank's share
  kolo::DistributedOptimizer optimizer(
      torch::optim::Adam(network->parameters(), flags.learning_rate), network->named_parameters(),
      {.weigh_by_samples = true});
  kolo::broadcast_parameters(*network, /*root=*/0);  // kolo: all start from the same weights
  const kolo::CheckpointParts parts{
      .module = network.get(), .optimizer = &optimizer, .sampler = &sampler};
  const std::int64_t done = resume(flags, parts);  // kolo: rank 0 reads, all get it

  std::vector<double> losses;
  if (speaks) losses = earlier_losses(flags, done);
  kolo::print("Parameters: ", network->parameter_count(), ", ranks: ", kolo::size(),
              ", digits: ", digits.count(), ", global batch: ", global_batch);
  kolo::print("Train loader batch size: ", (global_batch + kolo::size() - 1) / kolo::size());
  kolo::EpochTimer timer;
  kolo::Meter meter("epoch_loss");
  std::int64_t step = 0;
  const auto is_last = [&] { return flags.max_steps > 0 && step >= flags.max_steps; };
  for (std::int64_t epoch = done + 1; epoch <= flags.epochs && !is_last(); ++epoch) {
    sampler.set_epoch(static_cast<std::size_t>(epoch));  // kolo: another order
    // Each rank has its own noise. A resumed run has the noise that it would have had without a
    // break.
    torch::manual_seed(flags.seed + static_cast<std::uint64_t>(epoch) * 1'000'003 +
                       static_cast<std::uint64_t>(kolo::rank()));
    meter.reset();
    timer.restart();
    network->train();
    kolo::ProgressBar bar(steps, {.label = fmt::format("epoch {}/{}", epoch, flags.epochs)});
    std::int64_t in_epoch = 0;
    for (auto& batch : loader) {
      if (is_last()) break;
      optimizer.zero_grad();
      const torch::Tensor error = loss(network, batch.data.to(device), batch.target.to(device));
      optimizer.set_sample_count(batch.data.size(0));
      error.backward();
      optimizer.step();
      meter.add(error.item<double>(), batch.data.size(0));
      bar.update(++in_epoch, fmt::format("loss {:.4f}", error.item<double>()));
      ++step;
    }
    const double mean = meter.total().mean();  // kolo: over all ranks
    timer.lap();
    bar.finish(fmt::format("loss {:.4f}", mean));
    kolo::print(timer.line(epoch));
    // An epoch that is cut short does not count.
    if (in_epoch < steps) break;
    if (speaks) {
      losses.push_back(mean);
      write_losses(flags, losses);
    }
    if (epoch % flags.save_every != 0 && epoch != flags.epochs) continue;
    network->eval();
    if (speaks) draw_samples(flags, network, device, epoch);
    // kolo: rank 0 writes, in one step
    kolo::save_checkpoint(flags.output_dir / fmt::format("checkpoint_epoch_{}.pt", epoch), parts,
                          epoch);
  }
  kolo::print(fmt::format("Training completed in {:.2f} minutes", timer.total() / 60));
  return 0;
}

}  // namespace
}  // namespace rectified

int main(int argc, char** argv) {
  rectified::Flags flags;
  if (const auto status = rectified::parse(argc, argv, flags)) return *status;
  try {
    return rectified::train(flags, argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", examples::failure_line("rectified_flow", error));
    return 1;
  }
}
