#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace {

namespace fs = std::filesystem;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

/// A folder of rank 0's that all ranks know by name; removed with the test.
class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name;
    if (kolo::rank() == 0) {
      name = (fs::temp_directory_path() / "kolo-checkpoint-XXXXXX").string();
      ASSERT_NE(mkdtemp(name.data()), nullptr);
    }
    folder_ = kolo::broadcast_object(name, 0);
  }
  void TearDown() override {
    kolo::barrier();  // the others may still read
    std::error_code error;
    if (kolo::rank() == 0) fs::remove_all(folder_, error);
  }
  /// Rank 0 changes a file while the others wait.
  template <class Change>
  void change(const Change& change) {
    if (kolo::rank() == 0) change();
    kolo::broadcast_object(std::string(), 0);
  }

  fs::path folder_;
};

torch::nn::Sequential network() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::Linear(8, 2));
}

/// The parts of a run, as in the examples.
struct Training {
  torch::nn::Sequential model = network();
  torch::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(0.1)};
  kolo::StepLR scheduler{optimizer, 2, 0.5};
  kolo::DistributedSampler sampler{640, {.seed = 3}};

  Training() { kolo::broadcast_parameters(*model, 0); }
  kolo::CheckpointParts parts() { return {model.get(), &optimizer, &scheduler, &sampler}; }
  void step(int number) {
    optimizer.zero_grad();
    const auto input = torch::arange(24, torch::kFloat32).reshape({6, 4}).sin() * number;
    model->forward(input).pow(2).mean().backward();
    optimizer.step();
    sampler.next(8);
    scheduler.step();
  }
  double learning_rate() { return optimizer.param_groups()[0].options().get_lr(); }
};

void expect_alike(torch::nn::Module& one, torch::nn::Module& other) {
  for (const auto& item : one.named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), other.named_parameters()[item.key()])) << item.key();
  }
  for (const auto& item : one.named_buffers()) {
    EXPECT_TRUE(torch::equal(item.value(), other.named_buffers()[item.key()])) << item.key();
  }
}

TEST_F(CheckpointTest, ARunGoesOnAsIfItHadNotStopped) {
  const fs::path path = folder_ / "new" / "model.pt";
  Training run;
  for (int i = 1; i <= 3; ++i) run.step(i);
  kolo::save_checkpoint(path, run.parts(), 7);

  Training resumed;
  const auto* const memory = resumed.model->parameters()[0].data_ptr();
  if (kolo::rank() % 2 == 1) resumed.step(9);  // loading replaces what a rank has done before
  EXPECT_EQ(kolo::load_checkpoint(path, resumed.parts()), 7);
  EXPECT_EQ(resumed.model->parameters()[0].data_ptr(), memory) << "in place";
  EXPECT_DOUBLE_EQ(resumed.learning_rate(), run.learning_rate());
  expect_alike(*run.model, *resumed.model);
  resumed.sampler.reset();
  EXPECT_EQ(resumed.sampler.next(8), run.sampler.next(8));
  for (int i = 4; i <= 6; ++i) {
    run.step(i);
    resumed.step(i);
    EXPECT_DOUBLE_EQ(resumed.learning_rate(), run.learning_rate()) << "step " << i;
  }
  expect_alike(*run.model, *resumed.model);
}

TEST_F(CheckpointTest, TheModelIsPlainForLibTorch) {
  Training run;
  run.step(1);
  kolo::save_checkpoint(folder_ / "model.pt", run.parts(), 1);
  if (kolo::rank() != 0) return;
  auto plain = network();
  torch::load(plain, (folder_ / "model.pt").string());
  expect_alike(*run.model, *plain);
}

TEST_F(CheckpointTest, ATornOrDamagedFileIsRefusedOnAllRanks) {
  const fs::path path = folder_ / "model.pt";
  Training run;
  const auto message = [&] {
    return message_of([&] { kolo::load_checkpoint(path, run.parts()); });
  };
  EXPECT_THAT(message(), AllOf(HasSubstr("rank 0: checkpoint "), HasSubstr("cannot be opened")));
  kolo::save_checkpoint(path, run.parts(), 1);
  const auto size = kolo::rank() == 0 ? fs::file_size(path) : 0;

  change([&] {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    const int byte = file.peek();
    file.put(static_cast<char>(byte ^ 1));
  });
  EXPECT_THAT(message(), HasSubstr("is damaged: its checksum is"));
  kolo::save_checkpoint(path, run.parts(), 1);
  change([&] { fs::resize_file(path, size - 1); });
  EXPECT_THAT(message(), HasSubstr("is torn or was not saved by kolo"));
  EXPECT_EQ(message().find('\n'), std::string::npos) << "one line";
  change([&] { torch::save(run.model, path.string()); });
  EXPECT_THAT(message(), HasSubstr("was not saved by kolo"));
  kolo::save_checkpoint(path, run.parts(), 2);
  EXPECT_EQ(kolo::load_checkpoint(path, run.parts()), 2) << "still usable";
}

TEST_F(CheckpointTest, WhatDoesNotFitIsNamedAndLeavesTheModuleAlone) {
  const fs::path path = folder_ / "model.pt";
  Training run;
  kolo::save_checkpoint(path, {.module = run.model.get()}, 1);
  torch::nn::Sequential other(torch::nn::Linear(4, 9), torch::nn::BatchNorm1d(9),
                              torch::nn::Linear(9, 2));
  const auto before = other->parameters()[0].clone();
  // Only the last rank has a different module; every rank gets the error.
  const int odd = kolo::size() - 1;
  auto* const module = kolo::rank() == odd ? other.get() : run.model.get();
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, {.module = module}); }),
              AllOf(HasSubstr("rank " + std::to_string(odd) + ": checkpoint "),
                    HasSubstr("'0.weight' was saved as Float [8, 4], but this module's is Float "
                              "[9, 4]")));
  EXPECT_TRUE(torch::equal(other->parameters()[0], before));
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, run.parts()); }),
              HasSubstr("scheduler: none was saved"));
  EXPECT_THAT(message_of([&] { kolo::save_checkpoint(path, {.scheduler = &run.scheduler}, 1); }),
              HasSubstr("a scheduler without its optimizer"));
  torch::nn::Sequential more(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                             torch::nn::Linear(8, 2), torch::nn::Linear(2, 2));
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, {.module = more.get()}); }),
              HasSubstr("rank 0: checkpoint "));
}

TEST_F(CheckpointTest, AFailedLoadLeavesEveryPartOfEveryRank) {
  const fs::path path = folder_ / "model.pt";
  Training run, other;
  kolo::GradScaler scaler({.init_scale = 512}), own({.init_scale = 4});
  for (int i = 1; i <= 4; ++i) run.step(i);
  kolo::CheckpointParts saved = run.parts();
  saved.scaler = &scaler;
  kolo::save_checkpoint(path, saved, 1);

  // The last rank's optimizer has a second group, which shows only after its module was read.
  other.step(7);
  const auto parameters = other.model->parameters();
  torch::optim::AdamW groups({torch::optim::OptimizerParamGroup({parameters[0]}),
                              torch::optim::OptimizerParamGroup({parameters[1]})},
                             torch::optim::AdamWOptions(0.25));
  groups.step();
  const bool is_odd = kolo::rank() == kolo::size() - 1;
  kolo::CheckpointParts parts = other.parts();
  parts.scaler = &own;
  if (is_odd) parts.optimizer = &groups;
  const auto weight = parameters[0].detach().clone();
  const auto moment = [&](torch::optim::AdamW& of) {
    const auto& state = *of.state().at(parameters[0].unsafeGetTensorImpl());
    return static_cast<const torch::optim::AdamWParamState&>(state).exp_avg().clone();
  };
  const auto before = moment(other.optimizer);
  const auto rate = other.learning_rate();
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, parts); }),
              HasSubstr("rank " + std::to_string(kolo::size() - 1) + ": checkpoint "));
  EXPECT_TRUE(torch::equal(parameters[0], weight));
  EXPECT_EQ(other.optimizer.state().size(), parameters.size());
  EXPECT_TRUE(torch::equal(moment(other.optimizer), before));
  EXPECT_EQ(other.learning_rate(), rate);
  EXPECT_EQ(groups.state().size(), 2U);
  EXPECT_EQ(own.scale_now(), 4);
  Training same;
  same.sampler.next(8);
  EXPECT_EQ(other.sampler.next(8), same.sampler.next(8)) << "in the middle of its pass";

  parts.optimizer = &other.optimizer;
  EXPECT_EQ(kolo::load_checkpoint(path, parts), 1) << "still usable";
  expect_alike(*run.model, *other.model);
  EXPECT_EQ(own.scale_now(), 512);
}

TEST_F(CheckpointTest, AFailedSaveIsToldToAllAndLeavesTheOldFile) {
  const fs::path path = folder_ / "model.pt";
  Training run;
  kolo::save_checkpoint(path, run.parts(), 1);
  // A folder has the name of the file that is to be written first.
  change([&] { fs::create_directory(path.string() + ".partial"); });
  EXPECT_THAT(message_of([&] { kolo::save_checkpoint(path, run.parts(), 2); }),
              AllOf(HasSubstr("rank 0: checkpoint "), HasSubstr("cannot be written")));
  EXPECT_EQ(kolo::load_checkpoint(path, run.parts()), 1);
}

TEST_F(CheckpointTest, AScalerGoesOn) {
  const fs::path path = folder_ / "scaled.pt";
  kolo::GradScaler scaler({.init_scale = 512}), other({.init_scale = 4});
  scaler.update(64);
  kolo::save_checkpoint(path, {.scaler = &scaler}, 1);
  kolo::load_checkpoint(path, {.scaler = &other});
  EXPECT_EQ(other.scale_now(), 64);
}

TEST_F(CheckpointTest, EachRanksGeneratorGoesOn) {
  const fs::path path = folder_ / "generators.pt";
  torch::manual_seed(static_cast<std::uint64_t>(kolo::rank()) + 11);
  torch::rand({3});
  auto model = network();
  kolo::save_checkpoint(path, {.module = model.get(), .generators = true}, 1);
  const torch::Tensor next = torch::rand({8});
  kolo::load_checkpoint(path, {.module = model.get()});
  EXPECT_FALSE(torch::equal(torch::rand({8}), next)) << "only who asks for it";
  kolo::load_checkpoint(path, {.module = model.get(), .generators = true});
  EXPECT_TRUE(torch::equal(torch::rand({8}), next));

  kolo::save_checkpoint(path, {.module = model.get()}, 1);
  const torch::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, {.generators = true}); }),
              HasSubstr("generators: none was saved"));
  EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
}

/// Two networks with their optimizers, and an average of the first network's weights.
struct Adversaries {
  torch::nn::Sequential generator = network();
  torch::nn::Sequential discriminator = network();
  torch::nn::Sequential average = network();
  torch::optim::Adam generators{generator->parameters(), 0.1};
  torch::optim::Adam discriminators{discriminator->parameters(), 0.2};
  kolo::StepLR schedule{discriminators, 1, 0.5};
  std::string data;

  kolo::CheckpointParts parts() {
    return {.module = generator.get(),
            .optimizer = &generators,
            .modules = {{"discriminator", discriminator.get()}, {"average", average.get()}},
            .optimizers = {{"discriminator", &discriminators}},
            .schedulers = {{"discriminator", &schedule}},
            .data = &data};
  }
  void step() {
    for (const auto& [model, optimizer] :
         {std::pair<torch::nn::Sequential, torch::optim::Adam*>(generator, &generators),
          {discriminator, &discriminators}}) {
      optimizer->zero_grad();
      torch::nn::Sequential(model)->forward(torch::ones({6, 4})).pow(2).mean().backward();
      optimizer->step();
    }
    schedule.step();
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < average->parameters().size(); ++i)
      average->parameters()[i].lerp_(generator->parameters()[i], 0.1);
  }
};

TEST_F(CheckpointTest, SeveralModulesAndOptimizersGoOn) {
  torch::manual_seed(7);
  Adversaries run;
  for (int i = 0; i < 2; ++i) run.step();
  run.data = std::string("best\0 of all", 12);
  const fs::path path = folder_ / "adversaries.pt";
  kolo::save_checkpoint(path, run.parts(), 3);
  Adversaries other;
  EXPECT_EQ(kolo::load_checkpoint(path, other.parts()), 3);
  EXPECT_EQ(other.data, run.data);
  EXPECT_DOUBLE_EQ(other.discriminators.param_groups()[0].options().get_lr(), 0.1);
  for (Adversaries* const one : {&run, &other}) one->step();
  expect_alike(*run.generator, *other.generator);
  expect_alike(*run.discriminator, *other.discriminator);
  expect_alike(*run.average, *other.average);
  // LibTorch can still read the first module.
  auto plain = network();
  torch::load(plain, path.string());
}

TEST_F(CheckpointTest, FurtherPartsAreNamedInErrorsAndAllStayAsTheyWere) {
  const fs::path path = folder_ / "adversaries.pt";
  torch::manual_seed(7);
  Adversaries run;
  kolo::save_checkpoint(path, run.parts(), 3);
  Adversaries other;
  other.data = "mine";
  const torch::Tensor before = other.generator->parameters()[0].detach().clone();
  const auto refusal = [&](const auto& spoil) {
    kolo::CheckpointParts parts = other.parts();
    spoil(parts);
    const std::string message = message_of([&] { kolo::load_checkpoint(path, parts); });
    EXPECT_TRUE(torch::equal(other.generator->parameters()[0], before));
    EXPECT_EQ(other.data, "mine");
    return message;
  };
  torch::nn::Sequential larger(torch::nn::Linear(5, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::Linear(8, 2));
  EXPECT_THAT(refusal([&](auto& parts) { parts.modules["average"] = larger.get(); }),
              HasSubstr("module 'average': '0.weight' was saved as"));
  EXPECT_THAT(refusal([&](auto& parts) { parts.modules["teacher"] = larger.get(); }),
              HasSubstr("module 'teacher': none was saved"));
  torch::optim::SGD others(other.discriminator->parameters(), 0.1);
  EXPECT_THAT(refusal([&](auto& parts) { parts.optimizers["other"] = &others; }),
              HasSubstr("optimizer 'other': none was saved"));
  EXPECT_THAT(
      refusal([](auto& parts) { parts.schedulers["x"] = parts.schedulers.begin()->second; }),
      HasSubstr("scheduler 'x' without its optimizer"));
  EXPECT_THAT(refusal([](auto& parts) { parts.modules["a.b"] = parts.module; }),
              HasSubstr("'a.b': names are of letters"));
  EXPECT_THAT(refusal([](auto& parts) { parts.modules["none"] = nullptr; }),
              HasSubstr("module 'none' is a null pointer"));
  EXPECT_EQ(kolo::load_checkpoint(path, other.parts()), 3);
  EXPECT_EQ(other.data, "");
  kolo::save_checkpoint(path, {.module = run.generator.get()}, 3);
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, {.data = &other.data}); }),
              HasSubstr("data: none was saved"));
}

TEST_F(CheckpointTest, TheNewestWholeOneIsFound) {
  EXPECT_EQ(kolo::newest_checkpoint(folder_ / "nowhere"), std::nullopt);
  EXPECT_EQ(kolo::newest_checkpoint(folder_), std::nullopt);
  Training run;
  for (const char* name : {"c.pt", "a.pt", "b.pt"}) {
    kolo::save_checkpoint(folder_ / name, run.parts(), 1);
  }
  EXPECT_EQ(kolo::newest_checkpoint(folder_), folder_ / "b.pt");
  change([&] {
    fs::resize_file(folder_ / "b.pt", fs::file_size(folder_ / "b.pt") - 5);
    std::ofstream(folder_ / "losses.json") << "[]";
    fs::copy_file(folder_ / "a.pt", folder_ / "d.pt.partial");
  });
  EXPECT_EQ(kolo::newest_checkpoint(folder_), folder_ / "a.pt");
}

TEST_F(CheckpointTest, AFolderThatCannotBeReadIsNotTakenForAnEmptyOne) {
  change([&] { fs::create_symlink("loop", folder_ / "loop"); });
  EXPECT_THAT(message_of([&] { static_cast<void>(kolo::newest_checkpoint(folder_ / "loop")); }),
              AllOf(HasSubstr("rank 0: "), HasSubstr((folder_ / "loop").string()),
                    HasSubstr("cannot be read (Too many levels of symbolic links)")));
}

TEST_F(CheckpointTest, AnOptimizersStateForOtherShapesIsRefusedOnAllRanks) {
  const fs::path path = folder_ / "optimizer.pt";
  const bool is_odd = kolo::rank() == kolo::size() - 1;
  const auto weight = torch::ones({2, 2}, torch::requires_grad());
  const auto wider = torch::ones({2, 3}, torch::requires_grad());
  torch::optim::Adam saved({weight}, 0.1), other({is_odd ? wider : weight}, 0.5);
  const auto step = [](torch::optim::Adam& optimizer) {
    optimizer.zero_grad();
    optimizer.param_groups()[0].params()[0].sum().backward();
    optimizer.step();
  };
  step(saved);
  kolo::save_checkpoint(path, {.optimizer = &saved}, 1);
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, {.optimizer = &other}); }),
              AllOf(HasSubstr("rank " + std::to_string(kolo::size() - 1) + ": checkpoint "),
                    HasSubstr("parameter 0 of group 0 is for the sizes [2, 2], but the parameter "
                              "has [2, 3]")));
  EXPECT_TRUE(other.state().empty()) << "as before";
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.5);
  step(other);
}

TEST_F(CheckpointTest, AShardedOptimizerHasGroupsThatWereAddedThroughItsBaseClass) {
  const fs::path path = folder_ / "groups.pt";
  struct Run {
    torch::nn::Linear first{3, 2}, second{2, 1};
    kolo::ShardedOptimizer<torch::optim::Adam> optimizer{
        torch::optim::Adam(first->parameters(), 0.1), first->named_parameters()};
    Run() {
      static_cast<torch::optim::Optimizer&>(optimizer).add_param_group(
          torch::optim::OptimizerParamGroup(second->parameters()));
    }
  };
  Run saved, loaded;
  saved.second(saved.first(torch::ones({1, 3}))).sum().backward();
  saved.optimizer.step();
  kolo::save_checkpoint(path, {.optimizer = &saved.optimizer}, 1);
  EXPECT_EQ(kolo::load_checkpoint(path, {.optimizer = &loaded.optimizer}), 1);
  EXPECT_EQ(loaded.optimizer.state_bytes(), saved.optimizer.state_bytes());
}

TEST_F(CheckpointTest, APlateauSchedulerGoesOn) {
  const fs::path path = folder_ / "model.pt";
  const auto make = [](torch::optim::SGD& optimizer) {
    return kolo::ReduceLROnPlateau(optimizer, kolo::ReduceLROnPlateau::min, 0.5F, 1, 1e-4,
                                   kolo::ReduceLROnPlateau::rel, 1);
  };
  const auto rate = [](torch::optim::SGD& optimizer) {
    return optimizer.param_groups()[0].options().get_lr();
  };
  for (int stop = 0; stop < 8; ++stop) {
    auto weight = torch::ones({2}, torch::requires_grad());
    torch::optim::SGD optimizer({weight}, 1.0);
    torch::optim::SGD other({weight}, 1.0);
    auto scheduler = make(optimizer);
    auto resumed = make(other);
    const std::vector<float> metrics = {3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int i = 0; i < static_cast<int>(metrics.size()); ++i) {
      if (i == stop) {
        kolo::save_checkpoint(path, {.optimizer = &optimizer, .scheduler = &scheduler}, 0);
        kolo::load_checkpoint(path, {.optimizer = &other, .scheduler = &resumed});
      }
      scheduler.step(metrics[static_cast<std::size_t>(i)]);
      if (i < stop) continue;
      resumed.step(metrics[static_cast<std::size_t>(i)]);
      EXPECT_DOUBLE_EQ(rate(other), rate(optimizer)) << "stopped at " << stop << ", step " << i;
    }
    EXPECT_LT(rate(optimizer), 0.3);
    EXPECT_THAT(message_of([&] {
                  kolo::load_checkpoint(path, {.optimizer = &other, .scheduler = &resumed});
                }),
                HasSubstr("ReduceLROnPlateau has taken 13 steps already"));
  }
}

TEST(Schedulers, APlateauSchedulerLeavesTheLearningRateWhenItIsLoaded) {
  auto weight = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD optimizer({weight}, 1.0);
  kolo::ReduceLROnPlateau scheduler(optimizer, kolo::ReduceLROnPlateau::min, 0.5F, 1);
  for (int i = 0; i < 5; ++i) scheduler.step(1);
  torch::serialize::OutputArchive archive;
  scheduler.save(archive);
  std::stringstream stream;
  archive.save_to(stream);

  torch::optim::SGD other({weight}, 0.75);
  kolo::ReduceLROnPlateau resumed(other, kolo::ReduceLROnPlateau::min, 0.5F, 1);
  torch::serialize::InputArchive saved;
  saved.load_from(stream);
  resumed.load(saved);
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.75);
}

TEST(Schedulers, OneWhoseOptimizerWasMovedAwaySaysSo) {
  auto weight = torch::ones({2}, torch::requires_grad());
  const kolo::NamedTensors named = {{"weight", weight}};
  const auto expect_refusals = [&](const auto& wrap) {
    torch::optim::SGD optimizer({weight}, 1.0);
    kolo::StepLR steps(optimizer, 1, 0.5);
    kolo::ReduceLROnPlateau plateau(optimizer, kolo::ReduceLROnPlateau::min, 0.5F, 0);
    auto wrapped = wrap(std::move(optimizer));
    const auto refuses = HasSubstr("it was moved into another; make the scheduler from that one");
    EXPECT_THAT(message_of([&] { steps.step(); }), refuses);
    EXPECT_THAT(message_of([&] { plateau.step(1); }), refuses);
    kolo::StepLR right(*wrapped, 1, 0.5);
    for (int i = 0; i < 3; ++i) right.step();
    EXPECT_LT(wrapped->param_groups()[0].options().get_lr(), 1.0);
  };
  expect_refusals([&](torch::optim::SGD&& optimizer) {
    return std::make_unique<kolo::DistributedOptimizer<torch::optim::SGD>>(std::move(optimizer),
                                                                           named);
  });
  expect_refusals([&](torch::optim::SGD&& optimizer) {
    return std::make_unique<kolo::ShardedOptimizer<torch::optim::SGD>>(std::move(optimizer), named);
  });
}

}  // namespace
