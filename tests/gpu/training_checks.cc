// Training on CUDA tensors: some steps on all ranks against the same steps with the whole batch on
// each rank's CPU.
#include "tests/gpu/checks.h"

#include <filesystem>
#include <functional>
#include <limits>

namespace kolo::gpu {
namespace {

constexpr std::int64_t kBatch = 24;

torch::nn::Sequential network() {
  torch::manual_seed(3);
  torch::nn::Sequential result(torch::nn::Linear(8, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 4));
  result->to(torch::kFloat64);
  return result;
}

struct Batch {
  torch::Tensor input;
  torch::Tensor target;
};

Batch batch_of(int step, bool share) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  Batch batch{torch::randn({kBatch * size(), 8}, torch::kFloat64),
              torch::randn({kBatch * size(), 4}, torch::kFloat64)};
  if (!share) return batch;
  const std::int64_t begin = kBatch * rank();
  return {batch.input.narrow(0, begin, kBatch), batch.target.narrow(0, begin, kBatch)};
}

using Step = std::function<void(const Batch&)>;

/// Compares ten steps of `step` on this rank's shares with SGD on the CPU with whole batches.
void compare(const torch::nn::Module& trained, const Step& step, torch::Device device,
             double tolerance, const std::string& what) {
  auto reference = network();
  torch::optim::SGD sgd(reference->parameters(), 0.1);
  for (int i = 0; i < 10; ++i) {
    const Batch mine = batch_of(i, true);
    step({mine.input.to(device), mine.target.to(device)});
    const Batch whole = batch_of(i, false);
    sgd.zero_grad();
    torch::mse_loss(reference->forward(whole.input), whole.target).backward();
    sgd.step();
  }
  for (std::size_t i = 0; i < reference->parameters().size(); ++i) {
    expect_close(trained.parameters()[i], reference->parameters()[i], tolerance, what);
  }
}

void optimizer(torch::Device device) {
  for (const int groups : {0, 2}) {
    for (const bool compressed : {false, true}) {
      auto model = network();
      model->to(device);
      DistributedOptimizerOptions options;
      if (groups > 0) options.groups = groups;
      if (compressed) options.compression = compression::bf16();
      DistributedOptimizer sgd(torch::optim::SGD(model->parameters(), 0.1),
                               model->named_parameters(), options);
      broadcast_parameters(*model, 0);
      const Step step = [&](const Batch& batch) {
        sgd.zero_grad();
        torch::mse_loss(model->forward(batch.input), batch.target).backward();
        sgd.step();
      };
      compare(*model, step, device, compressed ? 2e-2 : 1e-8,
              fmt::format("DistributedOptimizer, {} groups, compressed: {}", groups, compressed));
    }
  }
}

void wrapper(torch::Device device) {
  for (const bool views : {false, true}) {
    for (const bool find : {false, true}) {
      auto model = network();
      model->to(device);
      DistributedDataParallel ddp(
          model, {.find_unused_parameters = find, .gradient_as_bucket_view = views});
      torch::optim::SGD sgd(ddp.parameters(), 0.1);
      const Step step = [&](const Batch& batch) {
        sgd.zero_grad();
        torch::mse_loss(ddp.forward(batch.input), batch.target).backward();
        sgd.step();
      };
      compare(*model, step, device, 1e-8,
              fmt::format("DistributedDataParallel, views: {}, find_unused: {}", views, find));
    }
  }
}

/// The first layer is on the CPU, the rest on the device: gradients come on two of autograd's
/// threads.
class SplitImpl : public torch::nn::Module {
 public:
  explicit SplitImpl(torch::Device device) : device_(device) {
    const auto whole = network();
    first_ = register_module("0", std::dynamic_pointer_cast<torch::nn::LinearImpl>(whole->ptr(0)));
    second_ = register_module("2", std::dynamic_pointer_cast<torch::nn::LinearImpl>(whole->ptr(2)));
    second_->to(device);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return second_->forward(torch::tanh(first_->forward(input.cpu())).to(device_));
  }

 private:
  torch::Device device_;
  std::shared_ptr<torch::nn::LinearImpl> first_, second_;
};
TORCH_MODULE(Split);

void two_devices(torch::Device device) {
  for (const bool views : {false, true}) {
    Split model(device);
    DistributedDataParallel ddp(model, {.gradient_as_bucket_view = views});
    torch::optim::SGD sgd(model->parameters(), 0.1);
    const Step step = [&](const Batch& batch) {
      sgd.zero_grad();
      torch::mse_loss(ddp.forward(batch.input), batch.target).backward();
      sgd.step();
    };
    compare(*model, step, device, 1e-8, fmt::format("layers on cpu and cuda, views: {}", views));
  }
}

void sharded(torch::Device device) {
  auto model = network();
  model->to(device);
  ShardedOptimizer sgd(torch::optim::SGD(model->parameters(), 0.1), model->named_parameters());
  const Step step = [&](const Batch& batch) {
    sgd.zero_grad();
    torch::mse_loss(model->forward(batch.input), batch.target).backward();
    sgd.step();
  };
  compare(*model, step, device, 1e-8, "ShardedOptimizer");
}

void batch_norm(torch::Device device) {
  torch::manual_seed(4);
  const torch::Tensor whole = torch::randn({6 * size(), 5, 4, 4}, torch::kFloat64);
  torch::nn::BatchNorm2d plain(5);
  SyncBatchNorm norm(torch::nn::BatchNormOptions(5));
  plain->to(torch::kFloat64);
  norm->to(device, torch::kFloat64);
  auto mine = whole.narrow(0, 6 * rank(), 6).to(device).requires_grad_();
  auto all = whole.clone().requires_grad_();
  const torch::Tensor output = norm->forward(mine);
  const torch::Tensor wanted = plain->forward(all);
  output.square().sum().backward();
  wanted.square().sum().backward();
  expect_close(output, wanted.narrow(0, 6 * rank(), 6), 1e-9, "SyncBatchNorm");
  expect_close(mine.grad(), all.grad().narrow(0, 6 * rank(), 6), 1e-9, "SyncBatchNorm's gradient");
  expect_close(norm->running_var, plain->running_var, 1e-9, "SyncBatchNorm's running variance");
}

void scaler(torch::Device device) {
  auto model = network();
  model->to(device);
  DistributedOptimizer sgd(torch::optim::SGD(model->parameters(), 0.1), model->named_parameters());
  GradScaler scaler;
  const auto step = [&](bool overflows) {
    sgd.zero_grad();
    const Batch batch = batch_of(0, true);
    torch::Tensor loss =
        torch::mse_loss(model->forward(batch.input.to(device)), batch.target.to(device));
    if (overflows && rank() == 0) loss = loss * std::numeric_limits<double>::infinity();
    scaler.scale(loss).backward();
    const bool stepped = scaler.step(sgd);
    scaler.update();
    return stepped;
  };
  expect(step(false), "GradScaler: a step was skipped");
  expect(!step(true), "GradScaler: another rank's overflow was not seen");
}

void states(torch::Device device) {
  auto model = network();
  model->to(device);
  torch::optim::Adam adam(model->parameters(), 0.01 * (rank() + 1));
  const Batch batch = batch_of(rank(), false);
  torch::mse_loss(model->forward(batch.input.to(device)), batch.target.to(device)).backward();
  adam.step();
  broadcast_parameters(*model, 0);
  broadcast_optimizer_state(adam, 0);
  const void* const key = model->parameters()[0].unsafeGetTensorImpl();
  const auto& state =
      static_cast<torch::optim::AdamParamState&>(*adam.state().at(const_cast<void*>(key)));
  expect(state.exp_avg().device() == device,
         "the optimizer's state is on " + state.exp_avg().device().str());
  expect_close(state.exp_avg(), broadcast(state.exp_avg().cpu(), 0), 0, "the optimizer's state");

  const auto path = std::filesystem::temp_directory_path() / "kolo_tensor_check.pt";
  save_checkpoint(path, {.module = model.get(), .optimizer = &adam}, 3);
  const torch::Tensor before = model->parameters()[0].detach().clone();
  {
    const torch::NoGradGuard no_grad;
    model->parameters()[0].zero_();
  }
  load_checkpoint(path, {.module = model.get(), .optimizer = &adam});
  expect(model->parameters()[0].device() == device, "a loaded parameter is elsewhere");
  expect_close(model->parameters()[0], before, 0, "a checkpoint");
  auto on_cpu = network();
  if (rank() == 0) {
    torch::load(on_cpu, path.string());
    const torch::Device where = on_cpu->parameters()[0].device();
    expect(where.is_cpu(), "what torch::load() has read of a checkpoint is on " + where.str());
    expect_close(on_cpu->parameters()[0], before, 0, "a checkpoint read on the CPU");
    std::filesystem::remove(path);
  }
}

}  // namespace

std::vector<Check> training_checks() {
  return {{"DistributedOptimizer", optimizer},
          {"DistributedDataParallel", wrapper},
          {"layers on two devices", two_devices},
          {"ShardedOptimizer", sharded},
          {"SyncBatchNorm", batch_norm},
          {"GradScaler", scaler},
          {"optimizer state and checkpoints", states}};
}

}  // namespace kolo::gpu
