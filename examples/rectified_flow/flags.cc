#include "examples/rectified_flow/flags.h"

#include "examples/common/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace rectified {
namespace {

/// "--save-every,--save_every": a flag of several words may be spelt either way.
std::string both(const std::string& name) {
  std::string underscores = name;
  std::replace(underscores.begin(), underscores.end(), '-', '_');
  return "--" + name + ",--" + underscores;
}

}  // namespace

std::optional<int> parse(int argc, char** argv, Flags& flags) {
  CLI::App app("Learns to draw digits by rectified flow, averaged over the ranks by kolo.");
  app.footer(
      "examples:\n"
      "  rectified_flow --epochs 20 --lr 1e-3 --output-dir digits\n"
      "  mpirun -np 2 rectified_flow --epochs 50 --lr 1e-3\n"
      "  mpirun -np 3 rectified_flow --resume --epochs 100    # goes on, also with other ranks\n"
      "  mpirun -np 4 rectified_flow --width 256 --depth 6    # 147 million parameters");
  app.option_defaults()->always_capture_default();
  app.add_option("--data", flags.data, "Folder of the IDX files (default: what tools/setup made)");
  auto* const per_rank =
      app.add_option(both("batch-size"), flags.batch_size, "Images per rank and step")
          ->check(examples::whole(1));
  app.add_option(both("global-batch"), flags.global_batch,
                 "Images of all ranks per step, shared as evenly as it goes (0: by --batch-size)")
      ->check(examples::whole(0))
      ->excludes(per_rank);
  app.add_option("--epochs", flags.epochs, "Passes over the digits, those of a checkpoint included")
      ->check(examples::whole(1));
  app.add_option("--lr", flags.learning_rate, "Adam's learning rate (a checkpoint has its own)")
      ->check(examples::positive());
  app.add_option("--seed", flags.seed, "Of the weights, the order of digits and the noise");
  app.add_option(both("num-workers"), flags.workers, "Threads that read digits ahead")
      ->check(examples::whole(0, 1024));
  app.add_option(both("save-every"), flags.save_every,
                 "Save a checkpoint and draw digits after this many epochs, and after the last")
      ->check(examples::whole(1));
  app.add_option(both("output-dir"), flags.output_dir, "Folder of all that the run leaves");
  auto* const path = app.add_option("--checkpoint", flags.checkpoint, "Go on from this checkpoint");
  app.add_flag("--resume", flags.resume, "Go on from the newest checkpoint in --output-dir, if any")
      ->excludes(path);
  const CLI::Validator multiple_of_8(
      [](const std::string& text) {
        std::int64_t value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && value % 8 == 0;
        return good ? std::string() : text + " is not a positive multiple of 8";
      },
      "MULTIPLE OF 8");
  app.add_option("--width", flags.width, "Channels at the full extent; size grows with its square")
      ->check(multiple_of_8);
  app.add_option("--depth", flags.depth, "Residual blocks at the smallest extent")
      ->check(examples::whole(1));
  app.add_option("--device", flags.device, "auto (a GPU where there is one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--threads", flags.threads, "Compute threads per rank")
      ->check(examples::whole(1, 1024));
  app.add_option(both("max-steps"), flags.max_steps,
                 "End after this many steps (0: after all epochs); an epoch that is cut short is "
                 "not saved")
      ->check(examples::whole(0));
  app.add_option("--samples", flags.samples, "Images that are drawn of each digit")
      ->check(examples::whole(1));
  app.add_option(both("sample-steps"), flags.sample_steps, "Euler steps from noise to image")
      ->check(examples::whole(1));
  return examples::parse(app, argc, argv);
}

}  // namespace rectified
