// Training with KOLO_OPERATIONS=nccl, over a fake of NCCL, against training with kolo's own
// operations. nccl_check does the same on GPUs.
#include "tests/support/nccl_world.h"
#include "tests/support/small_training.h"

#include <algorithm>

namespace kolo::test::nccl_training_test {
namespace {

/// Rank 0's mean losses; checks that all ranks end with the same parameters.
std::vector<double> trajectory(int size, const LocalWorldOptions& options) {
  std::vector<Arrays> parameters(static_cast<std::size_t>(size));
  std::vector<double> losses;
  run_local_world(
      size,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        std::vector<std::byte*> memory;
        const auto average = [&](Arrays& gradients) {
          std::vector<std::shared_ptr<Work>> works;
          for (std::size_t t = 0; t < gradients.size(); ++t) {
            const std::vector<float>& gradient = gradients[t];
            if (t == memory.size())
              memory.push_back(user.allocate(DataType::kFloat32, gradient.size()));
            user.fill(DataType::kFloat32, memory[t], gradient.size(),
                      [gradient](std::size_t i) { return static_cast<double>(gradient[i]); });
            Submission call = on_device(user, OperationKind::kAllreduce, fmt::format("g{}", t),
                                        DataType::kFloat32, memory[t], memory[t],
                                        {static_cast<std::int64_t>(gradient.size())});
            call.signature.op = ReduceOp::kAverage;
            works.push_back(submit(runtime, std::move(call)));
          }
          for (std::size_t t = 0; t < gradients.size(); ++t) {
            const Status status = finish(user, *works[t]);
            ASSERT_TRUE(status.ok()) << status.error().message;
            const auto mean = user.read(DataType::kFloat32, memory[t], gradients[t].size());
            std::transform(mean.begin(), mean.end(), gradients[t].begin(),
                           [](double value) { return static_cast<float>(value); });
          }
        };
        SmallTraining training(rank);
        const auto seen = training.run(kTrajectorySteps, average);
        parameters[static_cast<std::size_t>(rank)] = training.parameters();
        if (rank == 0) losses = seen;
      },
      options);
  for (const Arrays& of_rank : parameters) EXPECT_EQ(of_rank, parameters.front());
  return losses;
}

class TrainingOverNccl : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, TrainingOverNccl, testing::Values(1, 2, 3));

TEST_P(TrainingOverNccl, TakesTheStepsThatItTakesByKolosOperations) {
  const int size = GetParam();
  const auto nccl = fake_on_emulated_devices();
  const auto by_nccl = trajectory(size, over_nccl(size, nccl));
  const auto by_kolo = trajectory(size, with_devices(size, Devices::kStaged));
  EXPECT_LT(largest_difference(by_nccl, by_kolo), kTrajectoryTolerance);
  EXPECT_LT(by_nccl.back(), 0.2 * by_nccl.front());
  EXPECT_FALSE(allreduces(*nccl, 0).empty());
}

}  // namespace
}  // namespace kolo::test::nccl_training_test
