// A build with PMIx.
#include "runtime/bootstrap/pmix_bootstrap.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/phase.h"

#include <pmix.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace kolo {
namespace {

Status pmix_status(pmix_status_t code, std::string_view call) {
  if (code == PMIX_SUCCESS) return {};
  return KOLO_ERROR(kTransport, "{} failed: {}", call, PMIx_Error_string(code));
}

/// PMIx counts in whole seconds, and 0 would mean no timeout.
int seconds_left(Deadline deadline) {
  const auto left = deadline.remaining(std::chrono::hours(24));
  return std::max(1, static_cast<int>(std::chrono::ceil<std::chrono::seconds>(left).count()));
}

struct Infos {
  Infos() {
    for (pmix_info_t& info : array) PMIX_INFO_CONSTRUCT(&info);
  }
  ~Infos() {
    for (pmix_info_t& info : array) PMIX_INFO_DESTRUCT(&info);
  }
  Infos(const Infos&) = delete;
  Infos& operator=(const Infos&) = delete;
  std::array<pmix_info_t, 2> array = {};
};

class PmixBootstrap final : public Bootstrap {
 public:
  PmixBootstrap(const pmix_proc_t& self, int size, std::shared_ptr<int> exchanges)
      : self_(self), size_(size), exchanges_(std::move(exchanges)) {}

  std::string description() const override { return "pmix"; }
  int rank() const override { return static_cast<int>(self_.rank); }
  int size() const override { return size_; }

  Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                            Deadline deadline) override {
    // An exchange that missed its deadline does not count: in PMIx the next may reuse its number.
    const int step = *exchanges_ + 1;
    const std::string key = fmt::format("kolo.{}", step);
    std::string bytes = with_phase(phase, blob);
    pmix_value_t mine;
    PMIX_VALUE_CONSTRUCT(&mine);
    mine.type = PMIX_BYTE_OBJECT;
    mine.data.bo = {bytes.data(), bytes.size()};
    KOLO_TRY(pmix_status(PMIx_Put(PMIX_GLOBAL, key.c_str(), &mine), "PMIx_Put"));
    KOLO_TRY(pmix_status(PMIx_Commit(), "PMIx_Commit"));
    KOLO_TRY(fence(phase, deadline));
    *exchanges_ = step;
    std::vector<std::string> blobs;
    for (int rank = 0; rank < size_; ++rank) {
      KOLO_ASSIGN(const std::string got, get(rank, key, deadline));
      KOLO_ASSIGN(std::string theirs, without_phase(phase, got, this->rank(), rank));
      blobs.push_back(std::move(theirs));
    }
    return blobs;
  }

  void finalize() override { PMIx_Finalize(nullptr, 0); }
  /// It waits for no other rank. Without it, Open MPI's mpirun explains an end that it calls
  /// improper, below the reason.
  void finalize_alone() override { finalize(); }

 private:
  /// A collective. Afterwards this host's server has the data of all ranks.
  Status fence(std::string_view phase, Deadline deadline) {
    pmix_proc_t everybody = self_;
    everybody.rank = PMIX_RANK_WILDCARD;
    Infos infos;
    const bool collect = true;
    const int timeout = seconds_left(deadline);
    PMIX_INFO_LOAD(&infos.array[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos.array[1], PMIX_TIMEOUT, &timeout, PMIX_INT);
    const pmix_status_t code = PMIx_Fence(&everybody, 1, infos.array.data(), infos.array.size());
    if (code == PMIX_ERR_TIMEOUT) {
      return KOLO_ERROR(
          kTimeout,
          "rank {} of {}: not every rank reached phase '{}' of the bootstrap in time; "
          "see whether all called kolo::init() (KOLO_INIT_TIMEOUT)",
          rank(), size_, phase);
    }
    return pmix_status(code, "PMIx_Fence");
  }

  Result<std::string> get(int rank, const std::string& key, Deadline deadline) {
    pmix_proc_t other = self_;
    other.rank = static_cast<pmix_rank_t>(rank);
    Infos infos;
    const int timeout = seconds_left(deadline);
    PMIX_INFO_LOAD(&infos.array[0], PMIX_TIMEOUT, &timeout, PMIX_INT);
    pmix_value_t* value = nullptr;
    const pmix_status_t code = PMIx_Get(&other, key.c_str(), infos.array.data(), 1, &value);
    KOLO_TRY(pmix_status(code, fmt::format("PMIx_Get of rank {}'s {}", rank, key)));
    const bool is_bytes = value->type == PMIX_BYTE_OBJECT;
    std::string bytes = is_bytes ? std::string(value->data.bo.bytes, value->data.bo.size) : "";
    PMIX_VALUE_RELEASE(value);
    if (is_bytes) return bytes;
    return KOLO_ERROR(kTransport, "PMIx_Get of rank {}'s {}: no bytes", rank, key);
  }

  const pmix_proc_t self_;
  const int size_;
  const std::shared_ptr<int> exchanges_;
};

}  // namespace

bool pmix_built() { return true; }

Result<std::unique_ptr<Bootstrap>> make_pmix_bootstrap(std::shared_ptr<int> exchanges, Deadline) {
  pmix_proc_t self;
  PMIX_PROC_CONSTRUCT(&self);
  const pmix_status_t code = PMIx_Init(&self, nullptr, 0);
  if (code != PMIX_SUCCESS) {
    return KOLO_ERROR(kTransport,
                      "no PMIx server answers ({}); start the program with mpirun or "
                      "`srun --mpi=pmix`, or use another init method",
                      PMIx_Error_string(code));
  }
  pmix_proc_t job = self;
  job.rank = PMIX_RANK_WILDCARD;
  pmix_value_t* value = nullptr;
  KOLO_TRY(pmix_status(PMIx_Get(&job, PMIX_JOB_SIZE, nullptr, 0, &value), "PMIx_Get of the size"));
  const int size = static_cast<int>(value->data.uint32);
  PMIX_VALUE_RELEASE(value);
  return std::unique_ptr<Bootstrap>(
      std::make_unique<PmixBootstrap>(self, size, std::move(exchanges)));
}

}  // namespace kolo
