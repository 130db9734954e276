// What the environment says about the launcher.
#include "runtime/bootstrap/launcher.h"
#include "runtime/bootstrap/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

namespace kolo::launcher_test {
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
  const auto found = find_launcher(Environment(GetParam().variables));
  ASSERT_TRUE(found.ok()) << found.error().message;
  const auto& hint = *found;
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
        Case{"Mvapich", {{"MV2_COMM_WORLD_SIZE", "2"}}, "MV2_COMM_WORLD_SIZE", 2, true},
        Case{"Jsrun",
             {{"JSM_NAMESPACE_SIZE", "3"}, {"PMIX_RANK", "0"}},
             "JSM_NAMESPACE_SIZE",
             3,
             true},
        Case{"Pals", {{"PALS_RANKID", "1"}, {"PALS_LOCAL_SIZE", "2"}}, "PALS_RANKID", 0, true},
        Case{"Horovodrun", {{"HOROVOD_SIZE", "2"}, {"WORLD_SIZE", "1"}}, "HOROVOD_SIZE", 2, false}),
    [](const auto& tested) { return std::string(tested.param.what); });

TEST(FindLauncher, ASizeThatIsNoNumberIsRefused) {
  for (const char* variable : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE"}) {
    const auto hint = find_launcher(Environment(Variables{{variable, "4x"}}));
    ASSERT_FALSE(hint.ok()) << variable;
    EXPECT_EQ(hint.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(hint.error().message, HasSubstr(std::string(variable) + "='4x' is no number"));
  }
}

TEST(CheckWorldSize, MoreThanOneMustBeFound) {
  const auto check = [](const Variables& variables, int found) {
    return check_world_size(Environment(variables), found, "mpi (Some MPI 4.1)");
  };
  const Variables two = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_TRUE(check({}, 1).ok());
  EXPECT_TRUE(check(two, 2).ok());
  EXPECT_TRUE(check({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, 1).ok());
  EXPECT_TRUE(check({{"PMIX_RANK", "0"}}, 1).ok());
  EXPECT_TRUE(check({{"PMIX_RANK", "3"}}, 4).ok());
  EXPECT_TRUE(check({{"PALS_RANKID", "0"}, {"PALS_LOCAL_SIZE", "1"}}, 1).ok());
  for (const int found : {1, 3}) {
    const Status status = check(two, found);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr("announces 2 processes (PMI_SIZE=2)"),
                      HasSubstr("'mpi (Some MPI 4.1)' found " + std::to_string(found)),
                      HasSubstr("KOLO_INIT_METHOD=single://")));
  }
}

TEST(CheckWorldSize, ARankAboveZeroIsNotAlone) {
  const auto check = [](const Variables& variables) {
    return check_world_size(Environment(variables), 1, "a world of one");
  };
  for (const char* rank : {"RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    EXPECT_TRUE(check({{rank, "0"}}).ok()) << rank;
    const Status status = check({{rank, "1"}});
    ASSERT_FALSE(status.ok()) << rank;
    EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr(std::string(rank) + "=1"),
                                              HasSubstr("KOLO_INIT_METHOD=single://")));
  }
  // Variables that a script has left must not make mpirun -np 1 wrong.
  EXPECT_TRUE(
      check({{"RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).ok());
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
}  // namespace kolo::launcher_test
