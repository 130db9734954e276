// The rendezvous over MPI, run under mpirun with 1, 2 and 3 ranks. MPI starts only once per
// process, so this program has its own main. It leaves MPI to kolo, or, with the argument
// --user-starts-mpi, initialises and finalises MPI itself.
#include "runtime/bootstrap/mpi_bootstrap.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/rendezvous.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <string_view>
#include <thread>

namespace kolo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

Deadline soon_enough() { return Deadline::after(seconds(60)); }

int world_number(int (*query)(MPI_Comm, int*)) {
  int number = -1;
  query(MPI_COMM_WORLD, &number);
  return number;
}
int world_rank() { return world_number(MPI_Comm_rank); }
int world_size() { return world_number(MPI_Comm_size); }

/// Blobs of very different sizes, some empty, with zero bytes.
std::string blob_of(int rank, int round) {
  return std::string(static_cast<std::size_t>(rank * 100'003 * (round % 2)),
                     static_cast<char>(rank + round));
}

void expect_exchanges_work(Bootstrap& bootstrap) {
  for (int round = 0; round < 3; ++round) {
    const auto blobs = bootstrap.exchange("round", blob_of(bootstrap.rank(), round), soon_enough());
    ASSERT_TRUE(blobs.ok()) << blobs.error().message;
    ASSERT_EQ(blobs->size(), static_cast<std::size_t>(bootstrap.size()));
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
      EXPECT_EQ((*blobs)[static_cast<std::size_t>(rank)], blob_of(rank, round));
    }
  }
}

TEST(MpiBootstrap, ExchangesBlobsOfAnyLength) {
  const auto bootstrap = make_mpi_bootstrap(nullptr, soon_enough());
  ASSERT_TRUE(bootstrap.ok()) << bootstrap.error().message;
  EXPECT_EQ((*bootstrap)->rank(), world_rank());
  EXPECT_EQ((*bootstrap)->size(), world_size());
  EXPECT_THAT((*bootstrap)->description(), HasSubstr("mpi ("));
  expect_exchanges_work(**bootstrap);
  (*bootstrap)->finalize();
  EXPECT_TRUE(mpi_is_running());  // it was running before
}

TEST(MpiBootstrap, TakesACommunicatorOfTheUser) {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank() % 2, 0, &half);
  auto bootstrap = make_mpi_bootstrap(&half, soon_enough());
  ASSERT_TRUE(bootstrap.ok()) << bootstrap.error().message;
  MPI_Comm_free(&half);  // kolo has its own
  EXPECT_EQ((*bootstrap)->rank(), world_rank() / 2);
  EXPECT_EQ((*bootstrap)->size(), (world_size() + 1 - world_rank() % 2) / 2);
  expect_exchanges_work(**bootstrap);
  (*bootstrap)->finalize();
}

TEST(MpiBootstrap, RefusesACommunicatorWithoutThisProcess) {
  const MPI_Comm null = MPI_COMM_NULL;
  const auto bootstrap = make_mpi_bootstrap(&null, soon_enough());
  ASSERT_FALSE(bootstrap.ok());
  EXPECT_EQ(bootstrap.error().code, ErrorCode::kInvalidArgument);
}

TEST(MpiBootstrap, RefusesAThreadThatMpiDoesNotExpect) {
  int level = 0;
  MPI_Query_thread(&level);
  ASSERT_LT(level, MPI_THREAD_SERIALIZED);
  std::thread([] {
    const auto bootstrap = make_mpi_bootstrap(nullptr, soon_enough());
    ASSERT_FALSE(bootstrap.ok());
    EXPECT_EQ(bootstrap.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(bootstrap.error().message, HasSubstr("MPI_THREAD_SERIALIZED"));
  }).join();
}

Result<std::unique_ptr<Bootstrap>> go_in(const Environment& environment) {
  const RendezvousRequest request = {.mpi_built = true, .mpi_running = mpi_is_running()};
  KOLO_ASSIGN(const RendezvousMethod way, find_rendezvous_method(request, Config(), environment));
  EXPECT_EQ(way.meeting, Meeting::kMpi);
  return meet(way, {}, environment, soon_enough());
}

TEST(Rendezvous, TakesMpiUnderItsLauncherAndComparesTheSizes) {
  const auto found = go_in(Environment::of_process());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ((*found)->size(), world_size());
  (*found)->finalize();

  // The variables that an Open MPI program sees under MPICH's mpiexec, except for the sizes.
  const int announced = world_size() + 1;
  const Environment foreign(Environment::Variables{{"PMI_SIZE", std::to_string(announced)}});
  const auto refused = go_in(foreign);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr(fmt::format("PMI_SIZE={}", announced)),
                    HasSubstr(fmt::format("found {}", world_size())), HasSubstr("'mpi (")));
}

// Runs last, because it leaves a collective behind that never ends.
TEST(MpiBootstrapAtTheEnd, AMissingRankIsATimeoutThatNamesThePhase) {
  const auto bootstrap = make_mpi_bootstrap(nullptr, soon_enough());
  ASSERT_TRUE(bootstrap.ok()) << bootstrap.error().message;
  if (world_size() > 1 && world_rank() != 0) {
    const auto blobs = (*bootstrap)->exchange("connect", "", Deadline::after(milliseconds(50)));
    ASSERT_FALSE(blobs.ok());
    EXPECT_EQ(blobs.error().code, ErrorCode::kTimeout);
    EXPECT_THAT(blobs.error().message,
                AllOf(HasSubstr(fmt::format("rank {} of {}", world_rank(), world_size())),
                      HasSubstr("'connect'"), HasSubstr("KOLO_INIT_TIMEOUT")));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

bool finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

int run(bool users) {
  if (users) MPI_Init(nullptr, nullptr);
  if (mpi_is_running() != users) return std::puts("MPI is in the wrong state"), 1;
  // MPI that was initialised for a failed rendezvous is finalised by the next one.
  const MPI_Comm null = MPI_COMM_NULL;
  if (make_mpi_bootstrap(&null, soon_enough()).ok()) return std::puts("met nobody"), 1;
  auto bootstrap = make_mpi_bootstrap(nullptr, soon_enough());
  if (!bootstrap.ok()) return std::puts(bootstrap.error().message.c_str()), 1;
  const int failed = RUN_ALL_TESTS();
  (*bootstrap)->finalize();
  if (finalized() == users) return std::puts("MPI was finalised by the wrong side"), 1;
  if (users) MPI_Finalize();
  const auto late = make_mpi_bootstrap(nullptr, soon_enough());
  if (late.ok() || late.error().code != ErrorCode::kInvalidArgument) {
    return std::puts("a bootstrap after MPI_Finalize() was not refused"), 1;
  }
  return failed;
}

}  // namespace
}  // namespace kolo

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return kolo::run(argc > 1 && std::string_view(argv[1]) == "--user-starts-mpi");
}
