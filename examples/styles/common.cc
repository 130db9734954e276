#include "examples/styles/common.h"

#include "examples/common/failure.h"
#include "examples/common/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>

namespace styles {

Data load(const Flags& flags) {
  const std::filesystem::path folder =
      flags.data.empty() ? mnist::default_data_folder() : std::filesystem::path(flags.data);
  Data data{mnist::load_digits(folder, "train"), mnist::load_digits(folder, "t10k")};
  if (flags.images > 0) {
    data.train.images = data.train.images.slice(0, 0, static_cast<std::int64_t>(flags.images));
    data.train.labels = data.train.labels.slice(0, 0, static_cast<std::int64_t>(flags.images));
  }
  return data;
}

torch::Device stock_device(const Flags& flags) {
  if (flags.device != "auto") return torch::Device(flags.device);
  return torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
}

Answers answer(const Forward& forward, const mnist::Digits& test, torch::Device device, int rank,
               int size) {
  constexpr std::int64_t kBatch = 250;
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> share;
  for (std::int64_t i = rank; std::cmp_less(i, test.count()); i += size) share.push_back(i);
  Answers answers{0, static_cast<std::int64_t>(share.size())};
  for (std::int64_t at = 0; at < answers.count; at += kBatch) {
    const auto begin = share.begin() + at;
    const auto batch = mnist::batch_of(test, {begin, begin + std::min(kBatch, answers.count - at)});
    const torch::Tensor output = forward(batch.data.to(device));
    answers.right += output.argmax(1).eq(batch.target.to(device)).sum().item<std::int64_t>();
  }
  return answers;
}

void EpochReport::print(double loss, double accuracy, std::size_t images) const {
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
  fmt::print("epoch {}/{}: loss {:.4f}, accuracy {:.2f} %, {:.0f} images/s\n", epoch_, epochs_,
             loss, 100 * accuracy, static_cast<double>(images) / time.count());
  std::fflush(stdout);
}

namespace {

/// Devices with names like "cpu" and "cuda:1". Throws CLI::ValidationError with the name that is
/// wrong.
std::vector<torch::Device> devices_of(const std::vector<std::string>& names) {
  std::vector<torch::Device> devices;
  for (const std::string& name : names) {
    try {
      devices.emplace_back(name);
    } catch (const c10::Error&) {
      throw CLI::ValidationError("--devices", "'" + name + "' is no device, as cpu or cuda:0 are");
    }
    const auto gpus = static_cast<int>(torch::cuda::device_count());
    if (devices.back().is_cuda() && std::max<int>(devices.back().index(), 0) >= gpus)
      throw CLI::ValidationError(
          "--devices", fmt::format("'{}': this process sees {} CUDA devices", name, gpus));
  }
  return devices;
}

}  // namespace

int run(int argc, char** argv, const std::string& about,
        const std::function<void(const Flags&)>& train, const Extra& extra) {
  Flags flags;
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  CLI::App app(about);
  app.footer(fmt::format("examples:\n  {0}\n  {1}{0} --epochs 2 --batch-size 32", name,
                         extra.ranks ? "mpirun -np 2 " : ""));
  app.option_defaults()->always_capture_default();
  app.add_option("--data", flags.data, "Folder of the IDX files (default: what tools/setup made)");
  app.add_option("--batch-size", flags.batch_size,
                 extra.ranks ? "Images per rank and step" : "Images per step")
      ->check(examples::whole(1));
  app.add_option("--epochs", flags.epochs, "Passes over the training images")
      ->check(examples::whole(1));
  app.add_option("--images", flags.images, "Training images to use, from the first (default: all)")
      ->check(examples::whole(1));
  app.add_option("--lr", flags.learning_rate, "AdamW's learning rate")->check(examples::positive());
  app.add_option("--seed", flags.seed, "Of the weights, the order of images and dropout");
  app.add_option("--threads", flags.threads,
                 extra.ranks ? "Compute threads per rank" : "Compute threads, of each replica")
      ->check(examples::whole(1, 1024));
  if (extra.device) {
    app.add_option("--device", flags.device, "auto (a GPU where there is one), cpu or cuda")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  }
  if (extra.devices) {
    app.add_option_function<std::vector<std::string>>(
           "--devices", [&](const auto& names) { flags.devices = devices_of(names); },
           "Devices of each process, e.g. cpu,cpu or cpu,cuda")
        ->delimiter(',')
        ->default_str("cpu,cpu");
  }
  if (extra.dtype) {
    app.add_option_function<std::string>(
           "--dtype",
           [&](const auto& half) {
             flags.dtype = half == "bf16" ? torch::kBFloat16 : torch::kFloat16;
           },
           "Half type of forward")
        ->check(CLI::IsMember({"bf16", "fp16"}))
        ->default_str("bf16");
  }
  try {
    if (extra.take_flags) extra.take_flags(argc, argv);
    if (const auto status = examples::parse(app, argc, argv)) return *status;
    torch::set_num_threads(flags.threads);
    torch::manual_seed(flags.seed);
    train(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", examples::failure_line(name, error));
    return 1;
  }
  return 0;
}

int run_alone(int argc, char** argv, const std::string& about,
              const std::function<void(const Flags&)>& train) {
  return run(argc, argv, about, train, {.ranks = false});
}

}  // namespace styles
