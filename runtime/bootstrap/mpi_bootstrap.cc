// A build with MPI.
#include "runtime/bootstrap/mpi_bootstrap.h"

#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/own_thread.h"

#include <mpi.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

namespace kolo {
namespace {

Status mpi_status(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return KOLO_ERROR(kTransport, "{} failed: {}", call,
                    std::string_view(text, static_cast<std::size_t>(length)));
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text, static_cast<std::size_t>(length));
}

/// True when the request is done, false at the deadline.
Result<bool> wait(MPI_Request& request, Deadline deadline) {
  constexpr int kEagerTests = 1000;
  for (int tests = 0;; ++tests) {
    int done = 0;
    KOLO_TRY(mpi_status(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done != 0) return true;
    if (deadline.expired()) return false;
    // MPI has no wait with a deadline, so poll without burning the core.
    if (tests > kEagerTests) ::poll(nullptr, 0, 1);
  }
}

Error missing_ranks(int rank, int size, std::string_view phase) {
  return KOLO_ERROR(
      kTimeout,
      "rank {} of {}: not every rank reached phase '{}' of the bootstrap in time; see "
      "whether all called kolo::init() (KOLO_INIT_TIMEOUT)",
      rank, size, phase);
}

/// What an all-gather of blobs reads and writes. MPI cannot cancel a collective: one that misses
/// its deadline may still touch this memory when the user calls MPI later. The memory is then
/// leaked.
struct Gathering {
  std::string mine;
  int length = 0;
  std::vector<int> lengths;
  std::vector<int> offsets;
  std::string all;
};

/// kolo has initialised MPI, and no existing bootstrap will finalise it.
bool owes_finalize = false;

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap(MPI_Comm communicator, bool owns_mpi, int rank, int size)
      : communicator_(communicator), owns_mpi_(owns_mpi), rank_(rank), size_(size) {}
  /// If finalize() was not called, the next bootstrap finalises MPI.
  ~MpiBootstrap() override { owes_finalize |= owns_mpi_; }

  std::string description() const override {
    std::string version = library_version();
    version.resize(std::min(version.size(), version.find_first_of(",\n")));
    std::replace(version.begin(), version.end(), '\t', ' ');
    return fmt::format("mpi ({})", version);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                            Deadline deadline) override {
    auto gathering = std::make_unique<Gathering>();
    Gathering& g = *gathering;
    g.mine = std::move(blob);
    g.length = static_cast<int>(g.mine.size());
    g.lengths.resize(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    KOLO_TRY(mpi_status(MPI_Iallgather(&g.length, 1, MPI_INT, g.lengths.data(), 1, MPI_INT,
                                       communicator_, &request),
                        "MPI_Iallgather"));
    KOLO_TRY(finish(request, gathering, phase, deadline));

    const auto total = std::accumulate(g.lengths.begin(), g.lengths.end(), std::int64_t{0});
    if (total > std::numeric_limits<int>::max()) {
      return KOLO_ERROR(kUnsupported, "phase '{}' of the bootstrap: {} bytes are too many for MPI",
                        phase, total);
    }
    g.offsets.resize(g.lengths.size());
    std::exclusive_scan(g.lengths.begin(), g.lengths.end(), g.offsets.begin(), 0);
    g.all.resize(static_cast<std::size_t>(total));
    KOLO_TRY(mpi_status(
        MPI_Iallgatherv(g.mine.data(), g.length, MPI_BYTE, g.all.data(), g.lengths.data(),
                        g.offsets.data(), MPI_BYTE, communicator_, &request),
        "MPI_Iallgatherv"));
    KOLO_TRY(finish(request, gathering, phase, deadline));

    std::vector<std::string> blobs;
    for (std::size_t rank = 0; rank < g.lengths.size(); ++rank) {
      blobs.push_back(g.all.substr(static_cast<std::size_t>(g.offsets[rank]),
                                   static_cast<std::size_t>(g.lengths[rank])));
    }
    return blobs;
  }

  void finalize() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;
    MPI_Comm_free(&communicator_);
    if (std::exchange(owns_mpi_, false)) MPI_Finalize();
  }

 private:
  Status finish(MPI_Request& request, std::unique_ptr<Gathering>& gathering, std::string_view phase,
                Deadline deadline) const {
    auto done = wait(request, deadline);
    if (done.ok() && *done) return {};
    [[maybe_unused]] const Gathering* given_up = gathering.release();
    if (!done.ok()) return std::move(done).error();
    return missing_ranks(rank_, size_, phase);
  }

  MPI_Comm communicator_;
  bool owns_mpi_;
  const int rank_;
  const int size_;
};

/// Initialises MPI. That waits for all ranks of the launcher, and nothing calls it off. So at the
/// deadline this process ends, upon which the launcher ends the others.
Status start_mpi(Deadline deadline) {
  std::promise<void> started;
  std::thread watch = own_thread([deadline, is_started = started.get_future().share()] {
    if (is_started.wait_until(deadline.time()) == std::future_status::ready) return;
    Log("error").error(
        "MPI_Init_thread() has not returned in time (KOLO_INIT_TIMEOUT), so this process ends; see "
        "whether all ranks that the launcher has started call kolo::init(), or have ended");
    std::_Exit(1);
  });
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  started.set_value();
  watch.join();
  return mpi_status(code, "MPI_Init_thread");
}

/// Ensures that MPI runs and that this thread may call it.
Status ensure_running(Deadline deadline) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    return KOLO_ERROR(kInvalidArgument, "kolo::init() was called after MPI_Finalize()");
  }
  if (!mpi_is_running()) {
    KOLO_TRY(start_mpi(deadline));
    owes_finalize = true;
    return {};
  }
  int level = MPI_THREAD_SINGLE;
  int is_main = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  if (level < MPI_THREAD_SERIALIZED && is_main == 0) {
    return KOLO_ERROR(kInvalidArgument,
                      "kolo::init() was called on another thread than MPI_Init(); initialise MPI "
                      "with MPI_THREAD_SERIALIZED at least, or call both on one thread");
  }
  return {};
}

/// Collective. The duplicate keeps kolo's messages apart from the user's.
Result<MPI_Comm> duplicate(MPI_Comm original, int rank, int size, Deadline deadline) {
  // On the heap: MPI writes it when the duplicate is ready, perhaps after this call has timed out.
  auto own = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  KOLO_TRY(mpi_status(MPI_Comm_idup(original, own.get(), &request), "MPI_Comm_idup"));
  auto done = wait(request, deadline);
  if (done.ok() && *done) return *own;
  [[maybe_unused]] const MPI_Comm* given_up = own.release();
  if (!done.ok()) return std::move(done).error();
  return missing_ranks(rank, size, "communicator");
}

}  // namespace

bool mpi_built() { return true; }

int open_mpi_version() {
  // The version of the loaded library, not of the one kolo was built with. Works before MPI_Init().
  const std::string version = library_version();
  constexpr std::string_view kName = "Open MPI v";
  int major = 0;
  if (!version.starts_with(kName)) return 0;
  std::from_chars(version.data() + kName.size(), version.data() + version.size(), major);
  return major;
}

bool mpi_is_running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

Result<std::unique_ptr<Bootstrap>> make_mpi_bootstrap(const void* communicator, Deadline deadline) {
  KOLO_TRY(ensure_running(deadline));
  const MPI_Comm original =
      communicator != nullptr ? *static_cast<const MPI_Comm*>(communicator) : MPI_COMM_WORLD;
  if (original == MPI_COMM_NULL) {
    return KOLO_ERROR(kInvalidArgument,
                      "kolo::init(): mpi_comm is MPI_COMM_NULL; only its ranks may call init");
  }
  int rank = 0;
  int size = 0;
  KOLO_TRY(mpi_status(MPI_Comm_rank(original, &rank), "MPI_Comm_rank"));
  KOLO_TRY(mpi_status(MPI_Comm_size(original, &size), "MPI_Comm_size"));
  KOLO_ASSIGN(const MPI_Comm own, duplicate(original, rank, size, deadline));
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  const bool owns_mpi = std::exchange(owes_finalize, false);
  return std::unique_ptr<Bootstrap>(std::make_unique<MpiBootstrap>(own, owns_mpi, rank, size));
}

}  // namespace kolo
