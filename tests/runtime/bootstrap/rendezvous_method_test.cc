// Which rendezvous method follows from options and environment: the order of precedence, and
// refusals.
#include "runtime/bootstrap/rendezvous_method.h"
#include "runtime/bootstrap/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

namespace kolo::rendezvous_method_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Variables = Environment::Variables;

Result<RendezvousMethod> find(const Variables& variables, RendezvousRequest request = {}) {
  const Environment environment(variables);
  const auto config = Config::from_environment(environment);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return find_rendezvous_method(request, *config, environment);
}

Variables operator+(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "0"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "4000"}};
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "3"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
    {"PMIX_NAMESPACE", "job7"},          {"PMIX_RANK", "2"}};
const Variables kSlurm = {{"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "3"},
                          {"SLURM_STEP_NUM_TASKS", "5"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_NODELIST", "n[1-3],m05"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};
const Variables kKolo = {{"KOLO_RANK", "0"}, {"KOLO_SIZE", "2"}};

struct Case {
  const char* name;
  Variables variables;
  RendezvousRequest request;
  const char* expected;  ///< the beginning of its text
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

class RendezvousOrder : public testing::TestWithParam<Case> {};

TEST_P(RendezvousOrder, IsFixed) {
  const auto way = find(GetParam().variables, GetParam().request);
  ASSERT_TRUE(way.ok()) << way.error().message;
  EXPECT_THAT(to_text(*way), testing::StartsWith(GetParam().expected));
}

const RendezvousRequest kWithMpi = {.mpi_built = true, .open_mpi_version = 4};
const RendezvousRequest kWithMpich = {.mpi_built = true};
const Variables kHydra = {{"PMI_FD", "6"},
                          {"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"},
                          {"MPI_LOCALRANKID", "0"},
                          {"MPI_LOCALNRANKS", "1"}};
const RendezvousRequest kByOptions = {.init_method = "tcp://[::1]:5", .rank = 6, .size = 7};

INSTANTIATE_TEST_SUITE_P(
    All, RendezvousOrder,
    testing::Values(
        Case{"nothing", {}, kWithMpi, "a world of one, because nothing"},
        Case{"torchrun", kTorchrun, kWithMpi, "tcp://node1:4000 as rank 1 of 4, because RANK"},
        Case{"torchruns_agent_has_the_port",
             kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}}, kWithMpi,
             "where torchrun's agent at node1:4000 says as rank 1 of 4"},
        Case{"no_port",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
             {},
             "tcp://a:29500 as rank 1 of 2"},
        Case{"one_of_one",
             {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}},
             {},
             "a world of one, because RANK"},
        Case{"mpi", kOpenMpi + kSlurm, kWithMpi, "mpi, because OMPI_COMM_WORLD_RANK"},
        Case{"mpi_of_the_user", {}, {.mpi_built = true, .mpi_running = true}, "mpi, because MPI"},
        Case{"mpi_by_pmix", {{"PMIX_RANK", "0"}}, kWithMpi, "mpi, because PMIX_RANK"},
        Case{"mpi_after_rank", kOpenMpi + kTorchrun, kWithMpi, "tcp://node1:4000 as rank 1 of 4"},
        Case{"rank_without_address", kOpenMpi + Variables{{"RANK", "1"}, {"WORLD_SIZE", "3"}},
             kWithMpi, "mpi, because"},
        Case{"mpirun_without_mpi", kOpenMpi, {}, "tcp://127.0.0.1:"},
        Case{"hydra_with_its_mpi", kHydra, kWithMpich, "mpi, because PMI_RANK and PMI_SIZE"},
        Case{"hydra_without_mpi", kHydra, {}, "pmi, because PMI_FD is set"},
        Case{"hydra_with_open_mpi", kHydra, kWithMpi,
             "pmi, because PMI_FD is set, by the launcher of another MPI than this build's"},
        Case{"hydra_by_port", {{"PMI_PORT", "a:5"}, {"PMI_ID", "1"}}, {}, "pmi, because PMI_PORT"},
        Case{"hydra_by_port_with_its_mpi",
             {{"PMI_PORT", "a:5"}, {"PMI_ID", "1"}},
             kWithMpich,
             "mpi, because PMI_PORT"},
        Case{"hydra_with_address", kHydra + Variables{{"MASTER_ADDR", "h"}}, kWithMpi,
             "tcp://h:29500 as rank 1 of 2, because PMI_RANK"},
        Case{"hydra_within_slurm", kHydra + kSlurm, {}, "pmi, because PMI_FD"},
        Case{"slurms_own_pmi",
             kSlurm +
                 Variables{
                     {"PMI_FD", "6"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "5"}, {"PMI_JOBID", "7.0"}},
             kWithMpi, "tcp://n1:"},
        Case{"open_mpi_within_hydra", kOpenMpi + kHydra, {}, "tcp://127.0.0.1:"},
        Case{"open_mpis_mpirun_with_mpich", kOpenMpi, kWithMpich, "tcp://127.0.0.1:"},
        Case{"open_mpis_mpirun_with_mpich_and_pmix",
             kOpenMpi,
             {.mpi_built = true, .pmix_built = true},
             "pmix, because PMIX_RANK is set, by the launcher of another MPI than this build's"},
        Case{"another_open_mpis_mpirun", kOpenMpi + Variables{{"OMPI_VERSION", "5.0.11"}}, kWithMpi,
             "tcp://127.0.0.1:"},
        Case{"its_own_open_mpis_mpirun", kOpenMpi + Variables{{"OMPI_VERSION", "4.2"}}, kWithMpi,
             "mpi, because OMPI_COMM_WORLD_RANK"},
        Case{"pmi_by_method", kKolo + Variables{{"KOLO_INIT_METHOD", "pmi://"}}, {}, "pmi,"},
        Case{"slurm", kSlurm, kWithMpi, "tcp://n1:2"},
        Case{"slurm_with_address", kSlurm + Variables{{"MASTER_ADDR", "h"}}, kWithMpi,
             "tcp://h:29500 as rank 3 of 5, because SLURM_PROCID"},
        Case{"one_of_one_by_torchrun_on_its_own_port",
             {{"RANK", "0"},
              {"WORLD_SIZE", "1"},
              {"LOCAL_RANK", "0"},
              {"LOCAL_WORLD_SIZE", "1"},
              {"MASTER_ADDR", "a"},
              {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
             kWithMpi,
             "a world of one, because RANK"},
        Case{"one_of_one_by_mpirun",
             {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}},
             {},
             "a world of one, because OMPI_COMM_WORLD_RANK"},
        Case{"one_of_one_by_srun",
             {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
             {},
             "a world of one, because SLURM_PROCID"},
        Case{"rank_of_slurm_and_a_size_for_others",
             kSlurm + Variables{{"WORLD_SIZE", "5"}, {"MASTER_ADDR", "h"}},
             {},
             "tcp://h:29500 as rank 3 of 5, because SLURM_PROCID"},
        Case{"an_address_alone", {{"MASTER_ADDR", "a"}}, {}, "a world of one, because nothing"},
        Case{"single_whatever_others_say",
             {{"KOLO_INIT_METHOD", "single://"}, {"RANK", "1"}, {"WORLD_SIZE", "4x"}},
             {},
             "a world of one, because KOLO_INIT_METHOD"},
        Case{"brackets_of_an_url",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]"}},
             {},
             "tcp://[::1]:29500 as rank 1 of 2"},
        Case{"slurm_batch_script",
             {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "5"}, {"SLURM_PROCID", "0"}},
             kWithMpi,
             "a world of one"},
        Case{"kolo_before_all", kOpenMpi + kTorchrun + kKolo, kWithMpi,
             "tcp://node1:4000 as rank 0 of 2, because KOLO_RANK"},
        Case{"method_of_the_environment",
             kTorchrun + Variables{{"KOLO_INIT_METHOD", "file:///tmp/x"}}, kWithMpi,
             "file:///tmp/x as rank 1 of 4, because KOLO_INIT_METHOD is file:///tmp/x; rank by "
             "RANK"},
        Case{"kolo_run",
             kKolo + Variables{{"KOLO_INIT_METHOD", "tcp://a:1?server=launcher"}},
             {},
             "tcp://a:1 as rank 0 of 2"},
        Case{"single", kOpenMpi + Variables{{"KOLO_INIT_METHOD", "single://"}}, kWithMpi,
             "a world of one, because KOLO_INIT_METHOD"},
        Case{"mpi_by_method", kKolo + Variables{{"KOLO_INIT_METHOD", "mpi://"}}, kWithMpi, "mpi,"},
        Case{"options_first", kKolo + Variables{{"KOLO_INIT_METHOD", "mpi://"}}, kByOptions,
             "tcp://[::1]:5 as rank 6 of 7, because InitOptions::init_method"},
        Case{"communicator_first",
             kKolo,
             {.has_mpi_communicator = true},
             "mpi, because InitOptions"},
        Case{"slurm_by_method", kSlurm + kOpenMpi + Variables{{"KOLO_INIT_METHOD", "slurm://"}},
             kWithMpi, "tcp://n1:"}),
    [](const auto& tested) { return std::string(tested.param.name); });

struct Refusal {
  const char* name;
  Variables variables;
  RendezvousRequest request;
  const char* part;
};
void PrintTo(const Refusal& tested, std::ostream* out) { *out << tested.name; }
class RendezvousRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(RendezvousRefusal, SaysWhatToDo) {
  const auto way = find(GetParam().variables, GetParam().request);
  ASSERT_FALSE(way.ok()) << to_text(*way);
  EXPECT_THAT(way.error().message, HasSubstr(GetParam().part));
}

INSTANTIATE_TEST_SUITE_P(
    All, RendezvousRefusal,
    testing::Values(
        Refusal{"unknown_method", {}, {.init_method = "udp://a:1"}, "'udp://a:1' is not valid"},
        Refusal{"bad_address", kKolo, {.init_method = "tcp://a"}, "host:port"},
        Refusal{"port_0", kKolo, {.init_method = "tcp://a:0"}, "cannot be 0"},
        Refusal{"relative_file", kKolo, {.init_method = "file://x"}, "file:///path"},
        Refusal{"rank_alone", {{"KOLO_RANK", "1"}}, {}, "only the rank is given"},
        Refusal{"size_alone", {}, {.size = 2}, "only the size is given"},
        Refusal{
            "rank_too_large", {{"MASTER_ADDR", "a"}}, {.rank = 2, .size = 2}, "no rank 2 among 2"},
        Refusal{"nowhere_to_meet", kKolo, {}, "set MASTER_ADDR"},
        Refusal{"no_rank", {}, {.init_method = "tcp://a:1"}, "does not know its rank"},
        Refusal{"env_wants_rank", kSlurm, {.init_method = "env://"}, "RANK and WORLD_SIZE"},
        Refusal{"open_mpis_daemons_are_slurms_tasks",
                kSlurm + Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}},
                {},
                "rank 0 of 4 (OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE) does not know"},
        Refusal{"batch_script", {{"SLURM_JOB_ID", "1"}}, {.init_method = "slurm://"}, "srun"},
        Refusal{
            "two_options", {}, {.init_method = "env://", .has_mpi_communicator = true}, "mpi_comm"},
        Refusal{"bad_port",
                {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "x"}},
                {},
                "MASTER_PORT='x'"},
        Refusal{"loopback_between_hosts",
                {{"RANK", "0"},
                 {"WORLD_SIZE", "4"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "localhost"}},
                {},
                "only 2 ranks are on this host"},
        Refusal{
            "size_without_rank", {{"WORLD_SIZE", "2"}}, {}, "announces 2 processes (WORLD_SIZE=2)"},
        Refusal{"rank_that_is_no_number",
                {{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
                {},
                "RANK='x' is no number"},
        Refusal{"rank_and_address_alone",
                {{"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29777"}},
                kWithMpi,
                "RANK and MASTER_ADDR are set, but WORLD_SIZE is not"},
        Refusal{"first_rank_and_address_alone",
                {{"RANK", "0"}, {"MASTER_ADDR", "a"}},
                {},
                "RANK and MASTER_ADDR are set, but WORLD_SIZE is not"},
        Refusal{"size_and_address_alone",
                {{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
                {},
                "WORLD_SIZE and MASTER_ADDR are set, but RANK is not"},
        Refusal{"size_that_is_no_number",
                {{"RANK", "1"}, {"WORLD_SIZE", "4x"}},
                {},
                "WORLD_SIZE='4x' is no number"},
        Refusal{"rank_that_has_no_other", {{"RANK", "1"}}, {}, "RANK=1 speaks of other"},
        Refusal{"rank_beyond_its_size",
                {{"RANK", "1"}, {"WORLD_SIZE", "1"}},
                {},
                "RANK=1 speaks of other"},
        Refusal{"open_mpi_without_size",
                {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", ""}},
                {},
                "OMPI_COMM_WORLD_RANK=1 speaks of other"},
        Refusal{"pmi_without_size", {{"PMI_RANK", "2"}}, {}, "PMI_RANK=2 speaks of other"},
        Refusal{"pmix_in_a_build_without", {{"PMIX_RANK", "1"}}, {}, "PMIX_RANK=1 speaks of other"},
        Refusal{"mvapich",
                {{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}},
                {},
                "announces 2 processes (MV2_COMM_WORLD_SIZE=2)"},
        Refusal{
            "mvapich_without_size", {{"MV2_COMM_WORLD_RANK", "1"}}, {}, "MV2_COMM_WORLD_RANK=1"},
        Refusal{"jsrun",
                {{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "2"}},
                {},
                "announces 2 processes (JSM_NAMESPACE_SIZE=2)"},
        Refusal{"jsrun_without_size", {{"JSM_NAMESPACE_RANK", "1"}}, {}, "JSM_NAMESPACE_RANK=1"},
        Refusal{"pals", {{"PALS_RANKID", "1"}}, {}, "PALS_RANKID=1 speaks of other"},
        Refusal{"first_of_pals",
                {{"PALS_RANKID", "0"}, {"PALS_LOCAL_SIZE", "2"}},
                {},
                "PALS_LOCAL_SIZE=2 speaks of other"},
        Refusal{"horovodrun",
                {{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}},
                {},
                "announces 2 processes (HOROVOD_SIZE=2)"},
        Refusal{"horovodrun_without_size", {{"HOROVOD_RANK", "1"}}, {}, "HOROVOD_RANK=1"},
        Refusal{"stale_world_of_one",
                kOpenMpi + Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}},
                kWithMpi, "announces 3 processes"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(RendezvousMethod, StepsOfOneJobMeetApart) {
  Variables other = kSlurm;
  other["SLURM_STEP_ID"] = "1";
  EXPECT_NE(find(kSlurm)->endpoint.port, find(other)->endpoint.port);
  EXPECT_EQ(find(kSlurm)->local_rank, 1);
  EXPECT_TRUE(
      find(kKolo + Variables{{"KOLO_INIT_METHOD", "tcp://a:1?server=launcher"}})->launcher_serves);
}

TEST(RendezvousMethod, TheJobIsNamedByWhatStartedIt) {
  const Variables by_hand = kKolo + Variables{{"MASTER_ADDR", "node1"}};
  const Variables in_slurm_job = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n1"}};
  EXPECT_EQ(find(by_hand)->job, "");
  EXPECT_EQ(find(by_hand + in_slurm_job)->job, "SLURM_JOB_ID=7");
  EXPECT_EQ(find(by_hand + Variables{{"SLURM_HET_JOB_ID", "6"}} + in_slurm_job)->job,
            "SLURM_HET_JOB_ID=6");
  EXPECT_EQ(find(by_hand + Variables{{"PBS_JOBID", "3.host"}})->job, "PBS_JOBID=3.host");
  EXPECT_EQ(find(kTorchrun + Variables{{"TORCHELASTIC_RUN_ID", "none"}})->job, "");
  EXPECT_EQ(find(kTorchrun + Variables{{"TORCHELASTIC_RUN_ID", "a"}})->job,
            "TORCHELASTIC_RUN_ID=a");
  EXPECT_EQ(find(kSlurm)->job, "slurm 7.0") << "of the step";
}

TEST(RendezvousMethod, RankZeroOnAnotherNodeThanTheFirstSaysSo) {
  Variables first = kSlurm;
  first["SLURM_PROCID"] = "0";
  first["SLURM_NODEID"] = "0";
  EXPECT_EQ(find(first)->endpoint.host, "n1");
  first["SLURM_NODEID"] = "2";
  const auto lost = find(first);
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().message, testing::HasSubstr("set MASTER_ADDR"));
  first["MASTER_ADDR"] = "n3";
  EXPECT_EQ(find(first)->endpoint.host, "n3");
}

TEST(HostList, NodeListsAreExpanded) {
  const auto expand = [](const char* list) { return *expand_node_list(list); };
  EXPECT_THAT(expand("n1"), ElementsAre("n1"));
  EXPECT_THAT(expand("n[1-3,7],m05"), ElementsAre("n1", "n2", "n3", "n7", "m05"));
  EXPECT_THAT(expand("a[08-10]-ib"), ElementsAre("a08-ib", "a09-ib", "a10-ib"));
  EXPECT_THAT(expand("r[1-2]n[0,2]"), ElementsAre("r1n0", "r1n2", "r2n0", "r2n2"));
  for (const char* list : {"", "n[", "n]", "n[1-", "n[]", "n[3-1]", "n[a]", "a,,b",
                           "n[1-999999999]", "n[1,[2]]", "a,"}) {
    const auto refused = expand_node_list(list);
    ASSERT_FALSE(refused.ok()) << list;
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr(list), HasSubstr("n[1-3,7]")));
  }
}

TEST(HostList, TaskCountsAreExpanded) {
  EXPECT_THAT(*expand_task_counts("3,1(x3)"), ElementsAre(3, 1, 1, 1));
  EXPECT_THAT(*expand_task_counts("2(x2)"), ElementsAre(2, 2));
  for (const char* counts : {"", "x", "2(x", "2(x)", "2(3)", "2x3)", "1,,1", "1(x999999999)"}) {
    EXPECT_FALSE(expand_task_counts(counts).ok()) << counts;
  }
}

TEST(RendezvousMethod, AStoreOfTheUsersOwn) {
  RendezvousRequest request{.rank = 1, .size = 3, .has_store = true};
  const auto way = find({{"KOLO_INIT_METHOD", "env://"}}, request);
  ASSERT_TRUE(way.ok()) << way.error().message;
  EXPECT_EQ(way->meeting, Meeting::kStore);
  EXPECT_EQ(to_text(*way).substr(0, 30), "the user's store as rank 1 of ");
  request.init_method = "tcp://a:1";
  EXPECT_THAT(find({}, request).error().message,
              HasSubstr("InitOptions::store is given together with InitOptions::init_method "
                        "'tcp://a:1'"));
  request = {.has_store = true};
  EXPECT_THAT(find({}, request).error().message, HasSubstr("give InitOptions::rank"));
}

TEST(RendezvousMethod, ProgramsThatAreAloneKnowTheirLocalRank) {
  const Variables single = {{"KOLO_INIT_METHOD", "single://"}};
  for (const auto& [launcher, local_rank] :
       {std::pair(kTorchrun, 0), std::pair(kOpenMpi, 2), std::pair(kHydra, 0), std::pair(kSlurm, 1),
        std::pair(Variables{{"KOLO_LOCAL_RANK", "3"}}, 3)}) {
    const auto way = find(single + launcher);
    ASSERT_TRUE(way.ok()) << way.error().message;
    EXPECT_EQ(way->meeting, Meeting::kSingle);
    EXPECT_EQ(way->local_rank, local_rank);
  }
  EXPECT_FALSE(find(single)->local_rank);
}

TEST(RendezvousMethod, TheMethodIsTold) {
  EXPECT_EQ(find(kTorchrun)->method, "env");
  EXPECT_EQ(find(kTorchrun, {.init_method = "tcp://a:1"})->method, "tcp");
  EXPECT_EQ(find(kSlurm)->method, "slurm");
  EXPECT_EQ(find({})->method, "single");
}

}  // namespace
}  // namespace kolo::rendezvous_method_test
