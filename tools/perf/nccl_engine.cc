// For a build with NCCL: ncclAllReduce on the stream of --device cuda. NCCL is loaded at run time,
// not linked.
#include "runtime/nccl/nccl_communicator.h"
#include "tools/perf/engine.h"

#include <kolo/kolo.h>

#include <chrono>
#include <stdexcept>
#include <utility>

namespace kolo::perf {
namespace {

constexpr std::chrono::seconds kPatience{60};

void check(const Status& status) {
  if (!status.ok()) throw std::runtime_error("--compare nccl: " + status.error().message);
}

class NcclEngine final : public Engine {
 public:
  NcclEngine(Gpu& gpu, std::unique_ptr<NcclApi> api)
      : gpu_(gpu),
        api_(std::move(api)),
        communicator_(
            *api_,
            {.rank = rank(), .size = size(), .world_rank = rank(), .ordinal = device_ordinal()}) {}

  Status connect() {
    NcclUniqueId id = {};
    if (rank() == 0 && api_->get_unique_id(id) != NcclResult::kSuccess)
      return Error{ErrorCode::kDevice, "ncclGetUniqueId: " + api_->last_error(nullptr)};
    broadcast(id.data(), {static_cast<std::int64_t>(id.size())}, DataType::kUInt8, 0, {});
    const Status begun = communicator_.begin(id);
    return begun.ok() ? communicator_.wait(Deadline::after(kPatience)) : begun;
  }

  std::string_view name() const override { return "nccl"; }
  bool supports(const Problem& problem, bool /*in_place*/) const override {
    return problem.collective == Collective::kAllreduce && problem.op != ReduceOp::kAverage &&
           nccl_reduction(problem.type, problem.op).ok();
  }
  void prepare(const Problem& problem) override {
    if (supports(problem, false)) reduction_ = *nccl_reduction(problem.type, problem.op);
  }
  void run(const Problem& problem, const std::byte* input, std::byte* output,
           bool /*in_place*/) override {
    const NcclCommunicator::Piece piece{input, output, static_cast<std::size_t>(problem.count)};
    check(communicator_.all_reduce(reduction_, {&piece, 1}, gpu_.stream().handle));
    check(communicator_.wait(Deadline::after(kPatience)));
    gpu_.synchronize();
  }

 private:
  Gpu& gpu_;
  const std::unique_ptr<NcclApi> api_;
  NcclCommunicator communicator_;
  NcclReduction reduction_;
};

}  // namespace

Result<std::unique_ptr<Engine>> nccl_engine(Gpu* gpu) {
  if (gpu == nullptr)
    return Error{ErrorCode::kUnsupported, "--compare nccl: NCCL takes --device cuda alone"};
  auto api = open_nccl();
  if (!api.ok()) return api.error();
  auto engine = std::make_unique<NcclEngine>(*gpu, *std::move(api));
  if (const Status met = engine->connect(); !met.ok()) return met.error();
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace kolo::perf
