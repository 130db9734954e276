// Steps that end by an exception on one rank: the others are told, and none of their gradients is
// combined with a gradient of a later step. On all ranks at once.
#include "tests/support/ddp_ranks.h"
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::test::expect_gradient;
using kolo::test::is_last;
using kolo::test::kLeaf;
using kolo::test::message_of;
using kolo::test::mine;
using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The ranks that throw in a backward.
enum class Who { kNobody, kLastRank, kAll };

Who throwing = Who::kNobody;

/// Throws in backward if `throwing` says so.
struct Bad : torch::autograd::Function<Bad> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& input) {
    return input.clone();
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    if (throwing == Who::kAll || (throwing == Who::kLastRank && is_last()))
      throw std::runtime_error("a bad batch");
    return gradients;
  }
};

/// The last computed gets its gradient first: c and b before Bad's backward, a after it.
torch::Tensor loss_of(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& c,
                      double factor) {
  const torch::Tensor last = Bad::apply(a).sum();
  return (last + b.sum() + c.sum()) * factor;
}

struct ThreeImpl : torch::nn::Module {
  torch::Tensor a{register_parameter("a", torch::ones({3}, torch::kFloat64))};
  torch::Tensor b{register_parameter("b", torch::ones({2}, torch::kFloat64))};
  torch::Tensor c{register_parameter("c", torch::ones({4}, torch::kFloat64))};
  torch::Tensor forward(double factor) { return loss_of(a, b, c, factor); }
};

double mean_in(int step) { return kolo::test::mean_of_ranks() + step; }

/// Runs such steps: in step 1 the last rank throws, in step 3 all ranks throw. Every other step
/// must have right averages.
template <class Step, class Gradients>
void expect_whole_steps(const Step& step, const Gradients& expect_gradients) {
  for (int number = 0; number < 6; ++number) {
    SCOPED_TRACE(testing::Message() << "step " << number);
    throwing = number == 1 ? Who::kLastRank : number == 3 ? Who::kAll : Who::kNobody;
    const std::string message = message_of([&] { step(mine() + number); });
    if (number == 3 || (number == 1 && is_last())) {
      EXPECT_THAT(message, HasSubstr("a bad batch"));
    } else if (number == 1) {
      EXPECT_THAT(message, testing::ContainsRegex("rank " + std::to_string(kolo::size() - 1) +
                                                  ": .*ended by an exception"));
    } else {
      EXPECT_EQ(message, "(no error)");
      expect_gradients(mean_in(number));
    }
  }
  throwing = Who::kNobody;
}

TEST(InterruptedStep, OfDistributedDataParallelMeetsNoLaterOne) {
  const DdpOptions small{.bucket_cap_mb = 1e-5};
  std::vector<DdpOptions> all(4, small);
  all[1].gradient_as_bucket_view = false;
  all[2].find_unused_parameters = true;
  all[3].static_graph = true;
  for (const DdpOptions& options : all) {
    for (const bool with_hook : {false, true}) {
      for (const bool set_to_none : {true, false}) {
        const auto three = std::make_shared<ThreeImpl>();
        DistributedDataParallel ddp(three, options);
        if (with_hook) ddp.register_comm_hook(kolo::test::average_bucket);
        expect_whole_steps(
            [&](double factor) {
              for (torch::Tensor& parameter : three->parameters()) {
                if (set_to_none) parameter.mutable_grad().reset();
                if (parameter.grad().defined()) parameter.mutable_grad().zero_();
              }
              ddp.forward(factor).backward();
            },
            [&](double mean) {
              for (const torch::Tensor& parameter : three->parameters())
                expect_gradient(parameter, mean);
            });
      }
    }
  }
}

struct PlainImpl : torch::nn::Module {
  torch::Tensor weight{register_parameter("weight", torch::ones({3}, torch::kFloat64))};
  torch::Tensor forward(double factor) { return weight.sum() * factor; }
};

// One backward reaches two modules; one completes and the other throws. Neither may wait for news
// about the other.
TEST(InterruptedStep, OfTwoModulesIsToldOfBoth) {
  for (const bool finds_unused : {false, true}) {
    const DdpOptions options{.bucket_cap_mb = 1e-5, .find_unused_parameters = finds_unused};
    const auto three = std::make_shared<ThreeImpl>();
    const auto plain = std::make_shared<PlainImpl>();
    DistributedDataParallel cut(three, options);
    DistributedDataParallel whole(plain, options);
    expect_whole_steps(
        [&](double factor) {
          cut.zero_grad();
          whole.zero_grad();
          const torch::Tensor first = cut.forward(factor);
          const torch::Tensor second = whole.forward(factor);  // its backward comes first
          (first + second).backward();
        },
        [&](double mean) {
          for (const torch::Tensor& parameter : three->parameters())
            expect_gradient(parameter, mean);
          expect_gradient(plain->weight, mean);
        });
  }
}

// The exception comes after all parameters of the module.
TEST(InterruptedStep, OfAWholeModuleBringsNothingBack) {
  for (const bool is_static : {false, true}) {
    const auto plain = std::make_shared<PlainImpl>();
    DistributedDataParallel ddp(plain, {.static_graph = is_static});
    const torch::Tensor before = torch::ones({1}, kLeaf);
    int number = 0;
    for (; number < 4; ++number) {
      throwing = number == 1 ? Who::kLastRank : Who::kNobody;
      ddp.zero_grad();
      const std::string message = message_of([&] {
        const torch::Tensor input = Bad::apply(before).sum();
        (ddp.forward(mine() + number) * input).backward();
      });
      if (number == 1) {
        EXPECT_EQ(message, is_last() ? "a bad batch" : "(no error)");
        continue;
      }
      EXPECT_EQ(message, "(no error)");
      expect_gradient(plain->weight, mean_in(number));
    }
  }
  throwing = Who::kNobody;
}

// A rank that ends after its exception tells the others where its module ends.
TEST(InterruptedStep, OfAModuleThatEndsIsTold) {
  for (int turn = 0; turn < 2; ++turn) {
    DistributedDataParallel ddp(std::make_shared<ThreeImpl>(), {.bucket_cap_mb = 1e-5});
    throwing = Who::kLastRank;
    const std::string message = message_of([&] { ddp.forward(mine()).backward(); });
    EXPECT_THAT(message, HasSubstr(is_last() ? "a bad batch" : "ended by an exception"));
    throwing = Who::kNobody;
  }
}

TEST(InterruptedStep, OfAnOptimizerThatEndsIsTold) {
  for (int turn = 0; turn < 2; ++turn) {
    kolo::test::Weights weights;
    throwing = Who::kLastRank;
    const std::string message = message_of([&] {
      loss_of(weights.a, weights.b, weights.c, mine()).backward();
      weights.optimizer.step();
    });
    EXPECT_THAT(message, HasSubstr(is_last() ? "a bad batch" : "ended by an exception"));
    throwing = Who::kNobody;
  }
}

// A rank without samples makes no backward, so all gradients are reduced in step().
TEST(InterruptedStep, WithARankWithoutSamplesIsNoStepOfTheOthers) {
  if (kolo::size() < 2) return;
  kolo::test::Weights weights({.weigh_by_samples = true});
  expect_whole_steps(
      [&](double factor) {
        weights.optimizer.zero_grad();
        weights.optimizer.set_sample_count(kolo::rank() == 0 ? 0 : 1);
        if (kolo::rank() > 0) loss_of(weights.a, weights.b, weights.c, factor).backward();
        if (kolo::rank() == 0 && throwing == Who::kAll) throw std::runtime_error("a bad batch");
        weights.optimizer.step();
      },
      [&](double mean) {
        // Mean over ranks 1 and up: half a rank more than the mean over all.
        for (const auto& weight : {weights.a, weights.b, weights.c})
          expect_gradient(weight, mean + 0.5);
      });
}

TEST(InterruptedStep, OfDistributedOptimizerMeetsNoLaterOne) {
  for (const int groups : {0, 1, 2}) {
    for (const bool set_to_none : {true, false}) {
      kolo::DistributedOptimizerOptions options;
      if (groups > 0) options.groups = groups;
      kolo::test::Weights weights(options);
      expect_whole_steps(
          [&](double factor) {
            weights.optimizer.zero_grad(set_to_none);
            loss_of(weights.a, weights.b, weights.c, factor).backward();
            weights.optimizer.step();
          },
          [&](double mean) {
            for (const auto& weight : {weights.a, weights.b, weights.c})
              expect_gradient(weight, mean);
          });
    }
  }
}

/// The last rank cannot write the reduced gradient back.
struct NoRoom : kolo::Compressor {
  torch::ScalarType wire_type(torch::ScalarType type) const override { return type; }
  torch::Tensor compress(const std::string&, const torch::Tensor& gradient) override {
    return gradient.clone();
  }
  void decompress(const std::string&, const torch::Tensor& wire, torch::Tensor gradient) override {
    if (is_last()) throw std::runtime_error("no room");
    gradient.copy_(wire);
  }
};

// The following tests abort kolo, so tests/torch.cmake runs each by itself.
TEST(StepEnd, DISABLED_ADecompressorThatThrowsOnOneRankEndsOnAll) {
  kolo::test::Weights weights({.compression = std::make_shared<NoRoom>()});
  EXPECT_THAT(message_of([&] {
                while (true) {
                  weights.optimizer.zero_grad();
                  weights.all().backward();
                  weights.optimizer.step();
                }
              }),
              HasSubstr("no room"));
  EXPECT_THAT(message_of([&] { weights.all().backward(); }), HasSubstr("no room"));
}

struct FailingSgd : torch::optim::SGD {
  using torch::optim::SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override {
    if (is_last()) throw std::runtime_error("no room");
    return torch::optim::SGD::step(closure);
  }
};

TEST(StepEnd, DISABLED_AShardedStepThatThrowsOnOneRankEndsOnAll) {
  const torch::Tensor weight = torch::ones({5}, kLeaf);
  kolo::ShardedOptimizer optimizer(FailingSgd({weight}, 0.1),
                                   kolo::NamedTensors{{"weight", weight}});
  weight.sum().backward();
  EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("no room"));
  EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("no room"));
}

/// The last rank makes `step` only after the others have waited for the whole
/// KOLO_OPERATION_TIMEOUT and given up. The error of all names the step and its `parameters`, a
/// regular expression.
void make_step_too_late(const std::function<void()>& step, const std::string& parameters) {
  const std::string given_up =
      std::filesystem::temp_directory_path() / ("kolo_given_up." + std::to_string(::getppid()));
  if (is_last()) {
    while (!std::filesystem::exists(given_up))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::filesystem::remove(given_up);
  }
  EXPECT_THAT(message_of(step),
              testing::ContainsRegex("\\(of " + parameters +
                                     "\\) of step 2: submitted by .*missing on rank " +
                                     std::to_string(kolo::size() - 1)));
  if (!is_last()) std::ofstream(given_up).close();
}

TEST(StepEnd, DISABLED_ARankThatComesTooLateToDdpMeetsNoLaterStep) {
  DistributedDataParallel ddp(std::make_shared<ThreeImpl>());
  ddp.forward(mine()).backward();
  make_step_too_late([&] { ddp.forward(mine()).backward(); }, "'[abc]', '[abc]', '[abc]'");
}

TEST(StepEnd, DISABLED_ARankThatComesTooLateToShardsMeetsNoLaterStep) {
  std::vector<torch::Tensor> weights;
  kolo::NamedTensors named;
  for (int i = 0; i < 5; ++i) {
    weights.push_back(torch::ones({5}, kLeaf));
    named.emplace_back("w" + std::to_string(i), weights.back());
  }
  kolo::ShardedOptimizer optimizer(torch::optim::SGD(weights, 0.1), named);
  (torch::cat(weights).sum() * mine()).backward();
  optimizer.step();
  make_step_too_late([&] { optimizer.step(); }, "'w0', 'w1', 'w2' and 2 more");
}

}  // namespace
