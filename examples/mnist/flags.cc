#include "examples/mnist/flags.h"

#include "examples/common/options.h"

#include <CLI/CLI.hpp>

namespace mnist {

std::optional<int> parse(int argc, char** argv, Flags& flags) {
  CLI::App app(
      "Trains a small convolutional network on MNIST digits, averaged over the ranks by kolo.\n"
      "Started alone it is one rank; under mpirun there are as many as processes.");
  app.footer(
      "examples:\n"
      "  mnist --epochs 2\n"
      "  mpirun -np 2 mnist\n"
      "  mpirun -np 3 mnist --no-dropout --max-steps 50 --log-losses losses.jsonl\n"
      "  mpirun -np 4 mnist --data ~/mnist --batch-size 32 --json report.json");
  app.option_defaults()->always_capture_default();
  app.add_option("--data", flags.data, "Folder of the IDX files (default: what tools/setup made)");
  auto* const per_rank = app.add_option("--batch-size", flags.batch_size,
                                        "Images per rank and step (0: by --global-batch)")
                             ->check(examples::whole(0));
  app.add_option("--global-batch", flags.global_batch,
                 "Images of all ranks per step; ranks share them as evenly as it goes")
      ->check(examples::whole(1))
      ->excludes(per_rank);
  app.add_option("--epochs", flags.epochs, "Passes over the training images")
      ->check(examples::whole(1));
  app.add_option("--lr", flags.learning_rate, "AdamW's learning rate")->check(examples::positive());
  app.add_option("--seed", flags.seed, "Of the weights, the order of images and dropout");
  app.add_flag("!--no-dropout", flags.dropout,
               "Train without dropout: the same losses for any number of ranks");
  app.add_option("--device", flags.device, "auto (a GPU where there is one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--threads", flags.threads, "Compute threads per rank (0: cores / ranks per host)")
      ->check(examples::whole(0, 1024));
  app.add_option("--spawn", flags.spawn, "Start so many ranks on this host, without a launcher")
      ->check(examples::whole(1));
  app.add_option("--max-steps", flags.max_steps, "End after this many steps (0: after all epochs)")
      ->check(examples::whole(0));
  app.add_option("--progress", flags.progress,
                 "bar: a moving bar; lines: a line an epoch; auto: a bar on a terminal")
      ->check(CLI::IsMember({"auto", "bar", "lines"}));
  app.add_option("--log-losses", flags.losses_file, "Write each step's global loss, as JSON lines");
  app.add_option("--json", flags.report_file, "Write a report of the run, as JSON");
  return examples::parse(app, argc, argv);
}

}  // namespace mnist
