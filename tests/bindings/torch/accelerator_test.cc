// The Accelerator's loop against the same loop in one process and written by hand. On all ranks at
// once.
#include "tests/bindings/torch/accelerator_network.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace {

using kolo::test::batch_of;
using kolo::test::batch_of_all;
using kolo::test::expect_close;
using kolo::test::make_network;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(Accelerator, FiftyStepsAreThoseOfOneProcessWithTheGlobalBatch) {
  kolo::Accelerator accelerator;
  auto alone = make_network(), network = make_network();
  torch::optim::AdamW reference(alone->parameters(), 1e-2), adam(network->parameters(), 1e-2);
  torch::optim::StepLR reference_rate(reference, 10, 0.9), rate(adam, 10 * kolo::size(), 0.9);
  auto [scheduler, optimizer, model] = accelerator.prepare(rate, adam, network);
  for (int step = 0; step < 50; ++step) {
    reference.zero_grad();
    alone->forward(batch_of_all(step)).square().mean().backward();
    reference.step();
    reference_rate.step();
    optimizer.zero_grad();
    accelerator.backward(model.forward(batch_of(step, kolo::rank())).square().mean());
    optimizer.step();
    scheduler.step();
  }
  expect_close(*alone, *network, 1e-4);
  EXPECT_DOUBLE_EQ(adam.param_groups()[0].options().get_lr(),
                   reference.param_groups()[0].options().get_lr())
      << "the schedule of one process, which steps once for each";
  EXPECT_EQ(accelerator.unwrap_model(model).get(), network.get());
}

TEST(Accelerator, WithoutMixedPrecisionTheUsersAutocastStays) {
  const kolo::Accelerator accelerator;
  const kolo::Autocast half(torch::kCPU, {.dtype = torch::kBFloat16});
  const auto guard = accelerator.autocast();
  EXPECT_EQ(torch::matmul(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(),
            torch::kBFloat16);
}

TEST(Accelerator, TwoOptimizersStepByTheScaleOfOneBackward) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.mixed_precision = "fp16"},
                                {.scaler = {.init_scale = 1024}});
  auto alone = make_network(), network = make_network();
  torch::optim::SGD reference(alone->parameters(), 0.05);
  const auto all = network->parameters();
  torch::optim::SGD first({all[0]}, 0.05);
  torch::optim::SGD second(std::vector<torch::Tensor>(all.begin() + 1, all.end()), 0.05);
  auto [model, one, other] = accelerator.prepare(network, first, second);
  for (int i = 0; i < 3; ++i) {
    reference.zero_grad();
    alone->forward(batch_of_all(i)).square().mean().backward();
    reference.step();
    one.zero_grad();
    other.zero_grad();
    const auto before = all[1].detach().clone();
    accelerator.backward(model.forward(batch_of(i, kolo::rank())).square().mean());
    accelerator.clip_grad_norm(one, 1e9);
    accelerator.clip_grad_norm(other, 1e9);
    one.step();
    other.step();
    const auto moved = (all[1].detach() - before).norm().item<double>();
    EXPECT_NEAR(moved, 0.05 * alone->parameters()[1].grad().norm().item<double>(), 0.05 * moved);
  }
}

TEST(Accelerator, WhatWasMovedAwayStaysAHandle) {
  kolo::Accelerator accelerator;
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 0.05);
  torch::optim::StepLR rate(sgd, 1, 0.5);
  auto [model, optimizer, scheduler] = accelerator.prepare(network, sgd, rate);
  const auto all = std::make_tuple(std::move(model), std::move(optimizer), std::move(scheduler));
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  accelerator.backward(model.forward(batch_of(0, kolo::rank())).square().mean());
  optimizer.step();
  EXPECT_FALSE(optimizer.step_was_skipped());
  EXPECT_EQ(&scheduler.scheduler(), &rate);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(Accelerator, ItsScalerGoesOnFromACheckpoint) {
  const std::string path = kolo::broadcast_object(
      (std::filesystem::temp_directory_path() / ("kolo_fp16_" + std::to_string(getpid()))).string(),
      0);
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.mixed_precision = "fp16"},
                                {.scaler = {.init_scale = 1024}});
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 0.05);
  auto [model, optimizer] = accelerator.prepare(network, sgd);
  const auto step = [&](int i, double factor) {
    optimizer.zero_grad();
    accelerator.backward(model.forward(batch_of(i, kolo::rank())).square().mean() * factor);
    const double scale = accelerator.scaler()->scale_now();
    optimizer.step();
    return scale;
  };
  step(0, 1e38);
  EXPECT_TRUE(optimizer.step_was_skipped());
  const kolo::CheckpointParts parts{
      .module = network.get(), .optimizer = &sgd, .scaler = accelerator.scaler()};
  kolo::save_checkpoint(path, parts, 0);
  EXPECT_EQ(step(1, 1), 512);
  kolo::Accelerator resumed(kolo::AcceleratorConfig{.mixed_precision = "fp16"});
  kolo::load_checkpoint(path, {.scaler = resumed.scaler()});
  EXPECT_EQ(resumed.scaler()->scale_now(), 512);
  // In the same process, between a step and the next backward.
  kolo::load_checkpoint(path, parts);
  EXPECT_EQ(step(1, 1), 512);
  accelerator.wait_for_everyone();
  if (accelerator.is_main_process()) std::filesystem::remove(path);
}

TEST(Accelerator, MixedPrecisionStaysNearAndSkipsWhatOverflows) {
  for (const char* precision : {"bf16", "fp16"}) {
    kolo::Accelerator accelerator(kolo::AcceleratorConfig{.mixed_precision = precision},
                                  {.scaler = {.init_scale = 1024}});
    EXPECT_EQ(accelerator.mixed_precision(), precision);
    auto alone = make_network(), network = make_network();
    torch::optim::SGD reference(alone->parameters(), 0.05), sgd(network->parameters(), 0.05);
    auto [model, optimizer] = accelerator.prepare(network, sgd);
    const auto step = [&](int i, double factor) {
      optimizer.zero_grad();
      const auto output = model.forward(batch_of(i, kolo::rank()));
      EXPECT_EQ(output.scalar_type(), torch::kFloat32);
      accelerator.backward(output.square().mean() * factor);
      accelerator.clip_grad_norm(optimizer, 1e9);
      optimizer.step();
    };
    for (int i = 0; i < 50; ++i) {
      reference.zero_grad();
      alone->forward(batch_of_all(i)).square().mean().backward();
      reference.step();
      step(i, 1);
      EXPECT_FALSE(optimizer.step_was_skipped());
    }
    expect_close(*alone, *network, 2e-2);
    EXPECT_FALSE(torch::equal(alone->parameters()[0], network->parameters()[0]))
        << "forward is in a half type";
    if (std::string(precision) == "bf16") continue;
    const auto before = network->parameters()[0].detach().clone();
    step(0, kolo::rank() == 0 ? 1e38 : 1);
    EXPECT_TRUE(optimizer.step_was_skipped());
    EXPECT_TRUE(torch::equal(network->parameters()[0], before));
  }
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.mixed_precision = "bf16"});
  const auto guard = accelerator.autocast();
  EXPECT_EQ(torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(), torch::kBFloat16);
}

TEST(Accelerator, TakesAShardedOptimizer) {
  for (const char* precision : {"no", "fp16"}) {
    kolo::Accelerator accelerator(kolo::AcceleratorConfig{.mixed_precision = precision},
                                  {.scaler = {.init_scale = 256}});
    auto plain = make_network(), network = make_network();
    torch::optim::AdamW adam(plain->parameters(), 1e-2);
    kolo::ShardedOptimizer sharded(torch::optim::AdamW(network->parameters(), 1e-2),
                                   network->named_parameters(), {.gradients_are_reduced = true});
    auto [plain_model, plain_optimizer] = accelerator.prepare(plain, adam);
    auto [optimizer, model] = accelerator.prepare(sharded, network);
    for (int i = 0; i < 10; ++i) {
      const auto step = [&](auto& of, auto& by) {
        by.zero_grad();
        accelerator.backward(of.forward(batch_of(i, kolo::rank())).square().mean());
        const double norm = accelerator.clip_grad_norm(by, 0.1);
        by.step();
        return norm;
      };
      const double norm = step(plain_model, plain_optimizer);
      EXPECT_NEAR(step(model, optimizer), norm, 1e-4 * norm);
    }
    expect_close(*plain, *network, 1e-4);
  }
}

TEST(Accelerator, GathersTensorsAndTuples) {
  kolo::Accelerator accelerator;
  EXPECT_EQ(accelerator.num_processes(), kolo::size());
  EXPECT_EQ(accelerator.process_index(), kolo::rank());
  EXPECT_EQ(accelerator.is_main_process(), kolo::rank() == 0);
  EXPECT_EQ(accelerator.is_local_main_process(), kolo::local_rank() == 0);
  EXPECT_EQ(accelerator.device(), torch::Device(torch::kCPU));
  const auto rows = torch::full({kolo::rank() + 1, 2}, kolo::rank());
  const auto [all, scalars] = accelerator.gather(std::tuple(rows, torch::tensor(kolo::rank())));
  EXPECT_EQ(all.size(0), kolo::size() * (kolo::size() + 1) / 2);
  EXPECT_TRUE(torch::equal(scalars, torch::arange(kolo::size(), torch::kInt64).to(torch::kInt32)) ||
              torch::equal(scalars, torch::arange(kolo::size(), scalars.scalar_type())));
  const auto list = accelerator.gather(std::vector<torch::Tensor>{rows, rows});
  EXPECT_EQ(list.size(), 2U);
  EXPECT_TRUE(torch::equal(list[1], all));
  EXPECT_TRUE(torch::equal(accelerator.gather(torch::data::TensorExample(rows)).data, all));
  const std::map<std::string, torch::Tensor> named{{"rows", rows}};
  EXPECT_TRUE(torch::equal(accelerator.gather(named).at("rows"), all));
  EXPECT_TRUE(torch::equal(*accelerator.gather(std::optional(rows)), all));
  const auto with_undefined = accelerator.gather(std::vector<torch::Tensor>{torch::Tensor(), rows});
  EXPECT_FALSE(with_undefined[0].defined()) << "on all ranks alike";
  EXPECT_TRUE(torch::equal(with_undefined[1], all));
}

TEST(Accelerator, ATriggerOfOneRankIsSeenOnceByAll) {
  kolo::Accelerator accelerator;
  const int last = kolo::size() - 1;
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(accelerator.check_trigger());
    if (kolo::rank() == last) accelerator.set_trigger();
    EXPECT_TRUE(accelerator.check_trigger()) << "rank " << last << "'s";
  }
  EXPECT_FALSE(accelerator.check_trigger());
}

/// Returns its input unchanged, and converted to its weight's type.
struct TypesImpl : torch::nn::Module {
  TypesImpl() { linear = register_module("linear", torch::nn::Linear(2, 2)); }
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& input) {
    return {input, linear(input.to(torch::kFloat32))};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Types);

TEST(Accelerator, MixedPrecisionLeavesOtherTypesThanHalfOnes) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.mixed_precision = "bf16"});
  Types types;
  auto model = accelerator.prepare(types);
  for (const auto type : {torch::kInt64, torch::kFloat64}) {
    const auto [same, computed] = model.forward(torch::full({1, 2}, 16777217, type));
    EXPECT_EQ(same.scalar_type(), type);
    EXPECT_EQ(same[0][0].item<double>(), 16777217);
    EXPECT_EQ(computed.scalar_type(), torch::kFloat32) << "also in a tuple";
  }
}

TEST(Accelerator, SavesOnTheMainProcess) {
  kolo::Accelerator accelerator;
  const std::string path = kolo::broadcast_object(
      (std::filesystem::temp_directory_path() / ("kolo_acc_" + std::to_string(getpid()))).string(),
      0);
  auto network = make_network(), loaded = make_network();
  auto model = accelerator.prepare(network);
  if (kolo::rank() == 0) {
    const torch::NoGradGuard no_grad;
    network->parameters()[0].fill_(7);
  }
  accelerator.save(model, path);
  accelerator.wait_for_everyone();
  torch::load(loaded, path);
  EXPECT_EQ(loaded->parameters()[0][0][0].item<double>(), 7);
  accelerator.wait_for_everyone();
  if (accelerator.is_main_process()) {
    // A folder has the name of the file that is to be written first.
    std::filesystem::create_directory(path + ".partial");
    EXPECT_THAT(message_of([&] { accelerator.save(torch::ones({1}), path); }),
                HasSubstr("rank 0: save(): "));
    std::filesystem::remove(path + ".partial");
    torch::load(loaded, path);
    EXPECT_EQ(loaded->parameters()[0][0][0].item<double>(), 7) << "the older one";
    std::filesystem::remove(path);
  }
  testing::internal::CaptureStdout();
  accelerator.print("one ", 2);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), kolo::rank() == 0 ? "one 2\n" : "");
}

TEST(AcceleratorErrors, ConfigurationsThatDoNotFit) {
  using Config = kolo::AcceleratorConfig;
  const auto error_of = [](const Config& config) {
    return message_of([&] { kolo::Accelerator accelerator(config); });
  };
  EXPECT_THAT(error_of({.distributed_type = "FSDP"}), HasSubstr("distributed_type is FSDP"));
  EXPECT_THAT(error_of({.mixed_precision = "fp8"}), HasSubstr("mixed_precision is fp8"));
  EXPECT_THAT(error_of({.mixed_precision = "half"}), HasSubstr("mixed_precision is 'half'"));
  EXPECT_THAT(error_of({.machine_rank = 2, .num_machines = 2}), HasSubstr("machine_rank is 2"));
  EXPECT_THAT(error_of({.num_machines = 0}), HasSubstr("num_machines is 0"));
  EXPECT_THAT(error_of({.num_processes = 0}), HasSubstr("num_processes is 0"));
  EXPECT_THAT(error_of({.gradient_accumulation_steps = 0}),
              HasSubstr("gradient_accumulation_steps is 0"));
  const std::string met = std::to_string(kolo::size()) + " have met";
  EXPECT_THAT(error_of({.num_processes = 17}),
              HasSubstr("for 17 processes (num_processes), but " + met));
  if (kolo::size() > 1) {
    EXPECT_THAT(error_of({.distributed_type = "NO"}),
                HasSubstr("(distributed_type NO), but " + met));
  }
  if (!kolo::cuda_built()) {
    EXPECT_THAT(error_of({.distributed_type = "MULTI_GPU"}), HasSubstr("no CUDA"));
    EXPECT_EQ(error_of({.distributed_type = "MULTI_GPU", .use_cpu = true}), "(no error)");
  }
  EXPECT_EQ(error_of({.distributed_type = "MULTI_CPU", .num_processes = kolo::size()}),
            "(no error)");
}

TEST(AcceleratorErrors, RanksWhoseConfigurationsDiffer) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 and 3";
  const int last = kolo::size() - 1;
  const auto error_of = [last](const kolo::AcceleratorConfig& of_last,
                               const kolo::AcceleratorOptions& options = {}) {
    const bool is_last = kolo::rank() == last;
    return message_of([&] {
      kolo::Accelerator accelerator(is_last ? of_last : kolo::AcceleratorConfig{},
                                    is_last ? options : kolo::AcceleratorOptions{});
    });
  };
  const std::string on_last = " on rank " + std::to_string(last) + "; give every rank the same";
  EXPECT_THAT(error_of({.gradient_accumulation_steps = 4}),
              HasSubstr("gradient_accumulation_steps is 1 on rank 0, but 4" + on_last));
  EXPECT_THAT(error_of({.mixed_precision = "bf16"}),
              HasSubstr("mixed_precision is no on rank 0, but bf16" + on_last));
  EXPECT_THAT(error_of({}, {.step_scheduler_with_optimizer = false}),
              HasSubstr("step_scheduler_with_optimizer is true on rank 0, but false" + on_last));
  EXPECT_THAT(
      error_of({.num_processes = 17}),
      HasSubstr("rank " + std::to_string(last) + ": the configuration is for 17 processes"));
}

TEST(AcceleratorErrors, WhatRanksGatherDiffers) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 and 3";
  const kolo::Accelerator accelerator;
  const int last = kolo::size() - 1;
  const bool is_last = kolo::rank() == last;
  const torch::Tensor rows = torch::ones({2, 2});
  using Optional = std::optional<torch::Tensor>;
  const auto told = [last](const std::string& first, const std::string& other) {
    return HasSubstr("gather(): the value is " + first + " on rank 0, but " + other + " on rank " +
                     std::to_string(last) + " (t: a tensor");
  };
  const std::pair<Optional, Optional> one_of_two(is_last ? Optional() : rows,
                                                 is_last ? rows : Optional());
  EXPECT_THAT(message_of([&] { accelerator.gather(one_of_two); }), told("(t)()", "()(t)"));
  EXPECT_THAT(message_of([&] { accelerator.gather_for_metrics(one_of_two); }),
              told("(t)()", "()(t)"));
  EXPECT_THAT(
      message_of([&] { accelerator.gather(std::vector<torch::Tensor>(is_last ? 1U : 2U, rows)); }),
      told("[tt]", "[t]"));
  using Map = std::map<std::string, torch::Tensor>;
  EXPECT_THAT(message_of([&] {
                accelerator.gather(Map{{"loss", rows}, {is_last ? "right" : "seen", rows}});
              }),
              told("['loss't'seen't]", "['loss't'right't]"));
  const torch::Tensor other = is_last ? torch::Tensor() : rows;
  const auto is_undefined =
      AllOf(HasSubstr("gather(): "), HasSubstr("rank " + std::to_string(last) + ": "),
            HasSubstr("undefined tensor"));
  EXPECT_THAT(message_of([&] { accelerator.gather(other); }), is_undefined);
  EXPECT_THAT(message_of([&] { accelerator.gather_for_metrics(std::pair(rows, other)); }),
              is_undefined);
  EXPECT_THAT(message_of([&] { accelerator.gather(torch::data::Example<>(other, rows)); }),
              is_undefined);
  EXPECT_THAT(message_of([&] {
                accelerator.gather(std::vector{rows, other});
              }),
              told("[tt]", "[t-]"));
  const std::string of_last = "but rank " + std::to_string(last) + " submitted ";
  EXPECT_THAT(
      message_of([&] {
        accelerator.gather(torch::ones({2, is_last ? 4 : 3}));
      }),
      AllOf(HasSubstr("gather(): "), HasSubstr(of_last + "row shape [4]"), HasSubstr("pad them")));
  EXPECT_THAT(message_of([&] {
                accelerator.gather(std::pair(rows, is_last ? rows.to(torch::kFloat64) : rows));
              }),
              AllOf(HasSubstr("gather(): "), HasSubstr(of_last + "type float64")));
  EXPECT_EQ(accelerator.gather(rows).size(0), 2 * kolo::size()) << "they go on together";
}

TEST(AcceleratorErrors, WarningsAreRankZeros) {
  testing::internal::CaptureStderr();
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.warnings = {"the setting 'x'"}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            kolo::rank() == 0 ? "Accelerator: warning: the setting 'x'\n" : "");
}

}  // namespace
