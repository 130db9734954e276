// What the environment says about the launcher.
#include "runtime/bootstrap/launcher.h"
#include "runtime/bootstrap/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

namespace kolo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = Environment::Variables;

struct Case {
  const char* what;
  Variables variables;
  const char* variable;  ///< null: no launcher
  int size;
  bool is_mpi;
};

/// For the names of the tests.
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.what; }

class Launcher : public testing::TestWithParam<Case> {};

TEST_P(Launcher, IsRecognised) {
  const auto hint = find_launcher(Environment(GetParam().variables));
  ASSERT_EQ(hint.has_value(), GetParam().variable != nullptr);
  if (!hint) return;
  EXPECT_EQ(hint->variable, GetParam().variable);
  EXPECT_EQ(hint->size, GetParam().size);
  EXPECT_EQ(hint->is_mpi, GetParam().is_mpi);
}

INSTANTIATE_TEST_SUITE_P(
    Environments, Launcher,
    testing::Values(
        Case{"none", {{"HOME", "/root"}}, nullptr, 0, false},
        Case{"OpenMpi", {{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_SIZE", 2, true},
        Case{"Mpich", {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, "PMI_SIZE", 3, true},
        Case{"Torchrun", {{"RANK", "0"}, {"WORLD_SIZE", "4"}}, "WORLD_SIZE", 4, false},
        Case{"Pmix", {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "a"}}, "PMIX_RANK", 0, true},
        Case{"SlurmStep",
             {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "5"}},
             "SLURM_STEP_NUM_TASKS",
             5,
             true},
        Case{"SlurmStepOfOlderName",
             {{"SLURM_STEP_ID", "12"}, {"SLURM_NTASKS", "6"}},
             "SLURM_NTASKS",
             6,
             true},
        Case{"SlurmAllocation", {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "5"}}, nullptr, 0, false},
        Case{"SlurmBatchByName",
             {{"SLURM_STEP_ID", "batch"}, {"SLURM_NTASKS", "5"}},
             nullptr,
             0,
             false},
        Case{"SlurmBatchByNumber",
             {{"SLURM_STEP_ID", "4294967291"}, {"SLURM_NTASKS", "5"}},
             nullptr,
             0,
             false},
        Case{"SlurmNonsense",
             {{"SLURM_STEP_ID", "99999999999999999999"}, {"SLURM_NTASKS", "5"}},
             nullptr,
             0,
             false},
        Case{"MpirunWithinABatchScript",
             {{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "5"}},
             "OMPI_COMM_WORLD_SIZE",
             2,
             true},
        Case{"Unparsable", {{"WORLD_SIZE", "many"}}, nullptr, 0, false}),
    [](const auto& tested) { return std::string(tested.param.what); });

TEST(CheckWorldSize, MoreThanOneMustBeFound) {
  const LauncherHint hint{"a launcher", "THE_SIZE", 2, true};
  EXPECT_TRUE(check_world_size(std::nullopt, 1, "single").ok());
  EXPECT_TRUE(check_world_size(hint, 2, "mpi").ok());
  EXPECT_TRUE(check_world_size(LauncherHint{"a", "b", 1, true}, 1, "mpi").ok());
  EXPECT_TRUE(check_world_size(LauncherHint{"a", "b", 0, true}, 1, "mpi").ok());
  for (const int found : {1, 3}) {
    const Status status = check_world_size(hint, found, "mpi (Some MPI 4.1)");
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr("a launcher announces 2 processes (THE_SIZE=2)"),
                      HasSubstr("'mpi (Some MPI 4.1)' found " + std::to_string(found)),
                      HasSubstr("KOLO_INIT_METHOD=single://")));
  }
}

TEST(VisibleDevices, AreCountedAsCudaReadsThem) {
  const auto count = [](const char* list) {
    return visible_devices(Environment(Variables{{"CUDA_VISIBLE_DEVICES", list}}));
  };
  EXPECT_EQ(count("0"), 1);
  EXPECT_EQ(count("3,1,GPU-89f3,MIG-2"), 4);
  EXPECT_EQ(count("0,1,-1,2"), 2);
  for (const char* none : {"", "-1", "NoDevFiles", ",1"}) EXPECT_EQ(count(none), 0) << none;
}

}  // namespace
}  // namespace kolo
