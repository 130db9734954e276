#include <kolo/torch/accelerator.h>

#include "bindings/core/refusals.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/training/checkpoint_file.h"

#include <kolo/torch/device.h>
#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

namespace kolo {
namespace {

[[noreturn]] void refuse(ErrorCode code, const std::string& what) {
  raise(code, "Accelerator: " + what);
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

void check(const AcceleratorConfig& config) {
  const std::string& type = config.distributed_type;
  if (!is_one_of(type, {"", "NO", "MULTI_CPU", "MULTI_GPU"})) {
    refuse(ErrorCode::kUnsupported,
           fmt::format("distributed_type is {}; kolo has NO, MULTI_CPU and MULTI_GPU", type));
  }
  if (type == "MULTI_GPU" && !config.use_cpu && !cuda_built()) {
    refuse(ErrorCode::kUnsupported,
           "distributed_type is MULTI_GPU, but this build has no CUDA; say MULTI_CPU or use_cpu");
  }
  if (config.mixed_precision == "fp8") {
    refuse(ErrorCode::kUnsupported, "mixed_precision is fp8; kolo has no, fp16 and bf16");
  }
  if (!is_one_of(config.mixed_precision, {"no", "fp16", "bf16"})) {
    refuse(ErrorCode::kInvalidArgument,
           fmt::format("mixed_precision is '{}'; it is no, fp16 or bf16", config.mixed_precision));
  }
  const auto at_least = [](const char* key, int value, int least) {
    if (value >= least) return;
    refuse(ErrorCode::kInvalidArgument,
           fmt::format("{} is {}; it is {} or more", key, value, least));
  };
  at_least("gradient_accumulation_steps", config.gradient_accumulation_steps, 1);
  at_least("num_machines", config.num_machines, 1);
  at_least("num_processes", config.num_processes.value_or(1), 1);
  at_least("machine_rank", config.machine_rank, 0);
  if (config.machine_rank >= config.num_machines) {
    refuse(ErrorCode::kInvalidArgument, fmt::format("machine_rank is {}, of {} machines",
                                                    config.machine_rank, config.num_machines));
  }
}

/// One process per machine needs no launcher. Other layouts are left to a launcher.
InitOptions method(const AcceleratorConfig& config) {
  const bool by_hand = !config.main_process_ip.empty() && config.num_machines > 1 &&
                       config.num_processes.value_or(config.num_machines) == config.num_machines;
  if (!by_hand) return {};
  if (!config.main_process_port) {
    refuse(ErrorCode::kInvalidArgument,
           "main_process_ip is given, but no main_process_port; machines meet at both");
  }
  const std::string& ip = config.main_process_ip;
  const bool is_bare_v6 = ip.find(':') != std::string::npos && !ip.starts_with('[');
  return {.init_method = fmt::format("tcp://{}:{}", is_bare_v6 ? "[" + ip + "]" : ip,
                                     *config.main_process_port),
          .rank = config.machine_rank,
          .size = config.num_machines};
}

/// Why the configuration does not fit the number of processes that have met; empty if it fits.
std::string misfit(const AcceleratorConfig& config) {
  const bool alone = config.distributed_type == "NO";
  const int wanted = alone ? 1 : config.num_processes.value_or(size());
  if (wanted == size()) return "";
  return fmt::format(
      "the configuration is for {} processes ({}), but {} have met; start as many "
      "(kolo-run -np {}) or change it",
      wanted, alone ? "distributed_type NO" : "num_processes", size(), wanted);
}

/// Throws on every rank if some rank's configuration is for another number of processes, or if
/// options differ that decide when ranks send gradients and which.
void check_same_on_all(const AcceleratorConfig& config, const AcceleratorOptions& options) {
  constexpr std::array kNames = {"gradient_accumulation_steps", "mixed_precision",
                                 "step_scheduler_with_optimizer", "scaler"};
  const GradScalerOptions& scaler = options.scaler;
  const std::string its_options =
      config.mixed_precision != "fp16"
          ? ""
          : fmt::format(
                "{{enabled {}, init_scale {}, growth_factor {}, backoff_factor {}, "
                "growth_interval {}}}",
                scaler.enabled, scaler.init_scale, scaler.growth_factor, scaler.backoff_factor,
                scaler.growth_interval);
  const auto all = allgather_object(
      fmt::format("{}\n{}\n{}\n{}\n{}\n", misfit(config), config.gradient_accumulation_steps,
                  config.mixed_precision, options.step_scheduler_with_optimizer, its_options),
      {.name = "Accelerator"});
  std::vector<std::vector<std::string>> told(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::istringstream stream(all[r]);
    for (std::string line; std::getline(stream, line);) told[r].push_back(line);
  }
  for (std::size_t r = 0; r < told.size(); ++r) {
    if (!told[r][0].empty())
      refuse(ErrorCode::kMismatch, fmt::format("rank {}: {}", r, told[r][0]));
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (told[r][i + 1] == told[0][i + 1]) continue;
      refuse(ErrorCode::kMismatch,
             fmt::format("{} is {} on rank 0, but {} on rank {}; give every rank the same",
                         kNames[i], told[0][i + 1], told[r][i + 1], r));
    }
  }
}

/// Ranks match gathers by this name, so ranks whose rows differ fail instead of waiting.
constexpr const char* kGather = "Accelerator.gather";

/// Adds to the errors of `gather` which call failed.
template <class Gather>
void in_words_of_gather(const Gather& gather) {
  try {
    gather();
  } catch (const Exception& error) {
    if (error.code() == ErrorCode::kInvalidArgument)
      refuse(error.code(), fmt::format("gather(): {}", error.what()));
    if (error.code() != ErrorCode::kMismatch) throw;
    refuse(error.code(), fmt::format("gather(): {}; only their first extent may differ: pad them, "
                                     "or convert their type",
                                     error.what()));
  }
}

/// Number of rows at the tensor's end that only pad the batch; 0 if the rows are not the batch's.
std::int64_t repeated_rows_of(const torch::Tensor& tensor, const LoaderPass& pass) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (pass.repeated_rows < 0) return rows;
  if (pass.repeated_rows == 0) return 0;
  if (tensor.dim() == 0) return pass.repeated_rows == pass.rows ? 1 : 0;
  return rows % pass.rows == 0 ? rows / pass.rows * pass.repeated_rows : 0;
}

/// Puts the gathered rows, without padding, into the order in which they were dealt out. Keeps rank
/// order if they are not a batch's rows. All ranks see the same counts, so all do the same.
torch::Tensor in_order(const torch::Tensor& gathered, const std::vector<std::int64_t>& counts,
                       const LoaderPass& pass) {
  if (pass.rows == 0 || counts.size() == 1) return gathered;
  // Rank 0's batch is never padded.
  const bool is_batch = counts.front() == pass.rows &&
                        std::all_of(counts.begin(), counts.end(), [&](std::int64_t count) {
                          return count == pass.rows || (pass.has_last && count == pass.rows - 1);
                        });
  if (!is_batch) return gathered;
  std::vector<std::int64_t> order;
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      if (row < count) order.push_back(begin + row);
      begin += count;
    }
  }
  return gathered.index_select(0, torch::tensor(order, torch::kInt64).to(gathered.device()));
}

}  // namespace

Accelerator::Accelerator(const AcceleratorConfig& config, const AcceleratorOptions& options)
    : options_(options), precision_(config.mixed_precision) {
  check(config);
  if (!is_initialized()) init(method(config));
  check_same_on_all(config, options);
  if (speaks()) {
    for (const std::string& warning : config.warnings) {
      fmt::print(stderr, "Accelerator: warning: {}\n", warning);
    }
  }
  AcceleratorState& state = *state_;
  const bool on_cpu = config.use_cpu || config.distributed_type == "MULTI_CPU";
  state.device = kolo::device(on_cpu                                   ? "cpu"
                              : config.distributed_type == "MULTI_GPU" ? "cuda"
                                                                       : "auto");
  state.accumulation_steps = config.gradient_accumulation_steps;
  state.scheduler_with_steps = options.step_scheduler_with_optimizer;
  if (precision_ == "bf16") state.half = torch::kBFloat16;
  if (precision_ == "fp16") {
    state.half = torch::kHalf;
    state.scaler.emplace(options.scaler);
  }
}

std::size_t agreed_size(std::optional<std::size_t> data_size, const LoaderRecipeOptions& options) {
  constexpr std::array kNames = {"data size", "batch size", "seed", "shuffle", "drop_last"};
  const std::array<std::uint64_t, kNames.size()> own = {
      data_size.value_or(0), options.batch_size, options.seed, std::uint64_t{options.shuffle},
      std::uint64_t{options.drop_last}};
  Parcel parcel;
  parcel.bytes.assign(reinterpret_cast<const char*>(own.data()), sizeof own);
  if (!data_size) {
    parcel.failure =
        "loader_recipe: the data set's size() knows no number, so it cannot be dealt out; pass a "
        "loader of its batches";
  }
  const std::vector<std::string> all = allgather_bytes(parcel, {.name = "loader_recipe"});
  auto first = own;
  for (std::size_t r = 0; r < all.size(); ++r) {
    auto theirs = own;
    std::memcpy(theirs.data(), all[r].data(), sizeof theirs);
    if (r == 0) first = theirs;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (theirs[i] == first[i]) continue;
      raise(ErrorCode::kMismatch,
            fmt::format("loader_recipe: the {} is {} on rank 0, but {} on rank {}; pass the same "
                        "data set and options on every rank",
                        kNames[i], first[i], theirs[i], r));
    }
  }
  return *data_size;
}

void Accelerator::backward(const torch::Tensor& loss) {
  state_->begin_backward();
  torch::Tensor scaled = state_->accumulation_steps == 1 ? loss : loss / state_->accumulation_steps;
  if (state_->scaler) {
    // Gradients of earlier passes already carry those passes' scale.
    const bool adds_up = state_->holds_earlier && !state_->open_pass.expired();
    const double before = state_->scaler->scale_now();
    scaled = adds_up ? state_->scaler->scale_as_before(scaled) : state_->scaler->scale(scaled);
    const double now = state_->scaler->scale_now();
    if (now != before) state_->rescale_held(now / before);
  }
  if (state_->sync_gradients) state_->tell_optimizers(scaled);
  scaled.backward();
}

bool Accelerator::check_trigger() {
  const bool is_set = any(triggered_);
  if (is_set) triggered_ = false;
  return is_set;
}

std::shared_ptr<void> Accelerator::count_pass() {
  AcceleratorState& state = *state_;
  if (!state.open_pass.expired()) {
    refuse(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {} calls accumulate() within a pass of accumulate(); name all models "
                    "of a pass in one call, accumulate(generator, critic), or end the one before",
                    rank()));
  }
  state.holds_earlier = !state.sync_gradients;
  state.begin_pass();
  state.passes = state.loop_has_last() ? 0 : state.passes + 1;
  state.round_is_over = true;
  state.sync_gradients = state.passes % state.accumulation_steps == 0;
  std::shared_ptr<void> open = std::make_shared<char>();
  state.open_pass = open;
  return open;
}

void Accelerator::complete_gradients(torch::optim::Optimizer& optimizer) {
  if (state_->scaler) {
    state_->scaler->unscale_(optimizer);
  } else if (auto* const reducing = dynamic_cast<ReducingOptimizer*>(&optimizer)) {
    reducing->synchronize();
    reducing->skip_synchronize();
  }
}

Autocast Accelerator::autocast() const {
  // Without mixed precision, and within the user's own Autocast, nothing changes.
  const bool enabled =
      state_->half.has_value() || at::autocast::is_autocast_enabled(state_->device.type());
  return Autocast(state_->device, {.dtype = state_->half, .enabled = enabled});
}

void Accelerator::write_saved(const std::string& path, const std::string& bytes) {
  const std::string failure = failure_of([&] { write_whole_file(path, bytes); });
  if (failure.empty()) return;
  refuse(ErrorCode::kInvalidArgument, fmt::format("rank {}: save(): {}", rank(), failure));
}

void Accelerator::check_same_parts(const std::string& parts) {
  const auto all = allgather_object(parts, {.name = "Accelerator.gather/parts"});
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    refuse(ErrorCode::kMismatch,
           fmt::format("gather(): the value is {} on rank 0, but {} on rank {} (t: a tensor, -: an "
                       "undefined one, []: a list or map, (): an optional); give lists of one "
                       "length and maps of the same keys, and set an optional on all ranks or on "
                       "none",
                       all[0], all[r], r));
  }
}

// The other ranks have announced the first tensor of the value.
void Accelerator::refuse_undefined() {
  in_words_of_gather([] {
    for (const auto& work : refuse_allreduces(
             {kGather}, "its value has an undefined tensor; gather() takes defined ones", "", {})) {
      synchronize(*work);
    }
  });
}

torch::Tensor Accelerator::gather_rows(const torch::Tensor& tensor, const LoaderPass& pass) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  const std::int64_t kept = rows.size(0) - repeated_rows_of(tensor, pass);
  torch::Tensor gathered;
  in_words_of_gather([&] {
    TensorWork work = allgather_async(rows.detach().narrow(0, 0, kept), {.name = kGather});
    gathered = in_order(work.wait(), work.received_splits(), pass);
  });
  return gathered;
}

void refuse_disorder() {
  refuse(ErrorCode::kInvalidArgument,
         "prepare(): this loader's workers keep no order (enforce_ordering(false)), so ranks would "
         "deal out batches twice and others never; let them keep it, or pass a loader_recipe()");
}

void with_shared_seed(const std::function<void()>& call) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const torch::Tensor seed = torch::randint(1 << 24, {1}, torch::TensorOptions(torch::kInt64));
  broadcast_(seed, 0, {.name = "Accelerator.seed"});
  torch::Tensor before;
  // The user's threads may draw at the same time, for example those of a loader that reads ahead.
  const auto locked = [&](const auto& change) {
    const std::lock_guard lock(generator.mutex());
    change();
  };
  locked([&] {
    before = generator.get_state();
    generator.set_current_seed(static_cast<std::uint64_t>(seed.item<std::int64_t>()));
  });
  try {
    call();
  } catch (...) {
    locked([&] { generator.set_state(before); });
    throw;
  }
  locked([&] { generator.set_state(before); });
}

}  // namespace kolo
