#include "runtime/bootstrap/pmi_bootstrap.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/bootstrap/phase.h"
#include "runtime/bootstrap/pmi_client.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <utility>

namespace kolo {
namespace {

// A rank that waits longer than kPatience in a barrier announces itself. At the deadline the others
// can then tell who is missing; put values become visible only after the barrier.
constexpr std::chrono::seconds kPatience(1);
constexpr std::size_t kNumberLength = 8;  // for the number of pieces, before the first piece
constexpr std::size_t kMostPieces = std::size_t{1} << 16;

/// Whether the program has initialised an MPI, even one that kolo was not built with. That MPI
/// finalises PMI itself (MPICH 5 only at exit), and PMI must be finalised only once.
bool program_uses_mpi() {
  using Query = int (*)(int*);
  const auto query = reinterpret_cast<Query>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int initialised = 0;
  return query != nullptr && query(&initialised) == 0 && initialised != 0;
}

class PmiBootstrap final : public Bootstrap {
 public:
  PmiBootstrap(std::unique_ptr<PmiClient> client, std::shared_ptr<int> exchanges)
      : client_(std::move(client)), exchanges_(std::move(exchanges)) {}

  std::string description() const override { return "pmi"; }
  int rank() const override { return client_->rank(); }
  int size() const override { return client_->size(); }

  Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                            Deadline deadline) override {
    step_ = *exchanges_ + 1;
    KOLO_TRY(put(with_phase(phase, blob), deadline));
    KOLO_TRY(barrier(phase, deadline));
    *exchanges_ = step_;
    std::vector<std::string> blobs;
    for (int from = 0; from < size(); ++from) {
      KOLO_ASSIGN(const std::string got, get(from, deadline));
      KOLO_ASSIGN(std::string theirs, without_phase(phase, got, rank(), from));
      blobs.push_back(std::move(theirs));
    }
    return blobs;
  }

  void finalize() override {
    if (!program_uses_mpi()) client_->finalize(Deadline::after(kLeaveTimeout));
  }
  /// Then the launcher goes by the exit status, and other ranks can report what they know.
  void finalize_alone() override { finalize(); }

 private:
  std::string name(int rank) const { return fmt::format("kolo.{}.{}", step_, rank); }
  std::string service(int rank) const { return fmt::format("{}.{}", client_->job(), name(rank)); }

  /// Puts `bytes` in pieces that fit: first "<count>.<text>", then "<text>".
  Status put(std::string_view bytes, Deadline deadline) {
    const std::string text = to_pmi_text(bytes);
    const std::size_t room = client_->value_max() - kNumberLength;
    const std::size_t count = ceil_div(text.size(), room);
    if (count > kMostPieces) {
      return KOLO_ERROR(kUnsupported, "{} bytes are too many for PMI", bytes.size());
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::string piece = text.substr(i * room, room);
      KOLO_TRY(client_->put(fmt::format("{}.{}", name(rank()), i),
                            i == 0 ? fmt::format("{}.{}", count, piece) : piece, deadline));
    }
    return {};
  }

  Result<std::string> get(int from, Deadline deadline) {
    KOLO_ASSIGN(std::string text, client_->get(name(from) + ".0", deadline));
    std::size_t count = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const bool counted = error == std::errc() && rest != text.data() + text.size() &&
                         *rest == '.' && count <= kMostPieces;
    if (counted) text.erase(0, static_cast<std::size_t>(rest - text.data()) + 1);
    for (std::size_t i = 1; counted && i < count; ++i) {
      KOLO_ASSIGN(const std::string piece,
                  client_->get(fmt::format("{}.{}", name(from), i), deadline));
      text += piece;
    }
    auto bytes = from_pmi_text(text);
    if (counted && bytes && bytes->find('\n') != std::string::npos) return *std::move(bytes);
    return KOLO_ERROR(kTransport,
                      "rank {}: what the launcher has from rank {} ({} characters under {}) is not "
                      "what kolo wrote; see whether all run the same version of kolo",
                      rank(), from, text.size(), name(from));
  }

  Status barrier(std::string_view phase, Deadline deadline) {
    KOLO_TRY(client_->enter_barrier(deadline));
    const auto patience = Deadline::after(deadline.remaining(2 * kPatience) / 2);
    KOLO_ASSIGN(bool out, client_->await_barrier(patience));
    if (out) return {};
    KOLO_TRY(client_->announce(service(rank()), Deadline::after(kLeaveTimeout)));
    KOLO_ASSIGN(out, client_->await_barrier(deadline));
    if (!out) return missing(phase);
    return client_->withdraw(service(rank()), deadline);
  }

  Error missing(std::string_view phase) {
    std::vector<int> ranks;
    const auto leave = Deadline::after(kLeaveTimeout);
    for (int other = 0; other < size(); ++other) {
      const auto here = client_->is_announced(service(other), leave);
      if (here.ok() && !*here) ranks.push_back(other);
    }
    return KOLO_ERROR(kTimeout,
                      "rank {}: {} of {} ranks did not reach phase '{}' of the bootstrap in time: "
                      "{}; see whether they called kolo::init() (KOLO_INIT_TIMEOUT)",
                      rank(), ranks.size(), size(), phase, fmt::join(ranks, ", "));
  }

  const std::unique_ptr<PmiClient> client_;
  const std::shared_ptr<int> exchanges_;
  int step_ = 0;
};

}  // namespace

Result<std::unique_ptr<Bootstrap>> make_pmi_bootstrap(const Environment& environment,
                                                      std::shared_ptr<int> exchanges,
                                                      Deadline deadline) {
  KOLO_ASSIGN(auto client, PmiClient::connect(environment, deadline));
  return std::unique_ptr<Bootstrap>(
      std::make_unique<PmiBootstrap>(std::move(client), std::move(exchanges)));
}

}  // namespace kolo
