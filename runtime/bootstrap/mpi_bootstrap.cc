// A build with MPI.
#include "runtime/bootstrap/mpi_bootstrap.h"

#include "runtime/base/check.h"

#include <kolo/kolo.h>

#include <mpi.h>
#include <poll.h>

#include <numeric>

namespace kolo {
namespace {

Status to_status(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return KOLO_ERROR(kTransport, "{} failed: {}", call,
                    std::string_view(text, static_cast<std::size_t>(length)));
}

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap(MPI_Comm communicator, bool owns_mpi, int rank, int size)
      : communicator_(communicator), owns_mpi_(owns_mpi), rank_(rank), size_(size) {}

  std::string description() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string_view version(text, static_cast<std::size_t>(length));
    return fmt::format("mpi ({})", version.substr(0, version.find_first_of(",\n")));
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                            Deadline deadline) override {
    const int length = static_cast<int>(blob.size());
    std::vector<int> lengths(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    KOLO_TRY(to_status(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT,
                                      communicator_, &request),
                       "MPI_Iallgather"));
    KOLO_TRY(wait(request, phase, deadline));

    std::vector<int> offsets(lengths.size());
    std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
    std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
    KOLO_TRY(to_status(MPI_Iallgatherv(blob.data(), length, MPI_BYTE, all.data(), lengths.data(),
                                       offsets.data(), MPI_BYTE, communicator_, &request),
                       "MPI_Iallgatherv"));
    KOLO_TRY(wait(request, phase, deadline));

    std::vector<std::string> blobs;
    for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
      blobs.push_back(all.substr(static_cast<std::size_t>(offsets[rank]),
                                 static_cast<std::size_t>(lengths[rank])));
    }
    return blobs;
  }

  void finalize() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;
    MPI_Comm_free(&communicator_);
    if (owns_mpi_) MPI_Finalize();
  }

 private:
  // MPI cannot cancel a collective, so a request that misses its deadline is left behind: the error
  // ends init, and finalize() is not called after a failure.
  Status wait(MPI_Request& request, std::string_view phase, Deadline deadline) const {
    constexpr int kEagerTests = 1000;
    for (int tests = 0;; ++tests) {
      int done = 0;
      KOLO_TRY(to_status(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
      if (done != 0) return {};
      if (deadline.expired()) {
        return KOLO_ERROR(kTimeout,
                          "rank {} of {}: not every rank reached phase '{}' of the bootstrap in "
                          "time; see whether all called kolo::init() (KOLO_INIT_TIMEOUT)",
                          rank_, size_, phase);
      }
      // MPI has nothing to wait on with a deadline: be patient without burning the core.
      if (tests > kEagerTests) ::poll(nullptr, 0, 1);
    }
  }

  MPI_Comm communicator_;
  const bool owns_mpi_;
  const int rank_;
  const int size_;
};

}  // namespace

bool mpi_built() { return true; }

Result<std::unique_ptr<Bootstrap>> make_mpi_bootstrap(const void* communicator) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    return KOLO_ERROR(kInvalidArgument, "kolo::init() was called after MPI_Finalize()");
  }
  int initialized = 0;
  MPI_Initialized(&initialized);
  const bool owns_mpi = initialized == 0;
  if (owns_mpi) {
    int provided = 0;
    KOLO_TRY(to_status(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
                       "MPI_Init_thread"));
  }
  const MPI_Comm original =
      communicator != nullptr ? *static_cast<const MPI_Comm*>(communicator) : MPI_COMM_WORLD;
  MPI_Comm own = MPI_COMM_NULL;
  KOLO_TRY(to_status(MPI_Comm_dup(original, &own), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(own, &rank);
  MPI_Comm_size(own, &size);
  return std::unique_ptr<Bootstrap>(std::make_unique<MpiBootstrap>(own, owns_mpi, rank, size));
}

}  // namespace kolo
