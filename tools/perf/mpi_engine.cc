// For a build with MPI: the MPI that kolo is linked with, or, if kolo is built without, the MPI
// that tools/bench links in. The engine has its own communicator with kolo's ranks.
#include "tools/perf/engine.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <mpi.h>

#include <limits>

namespace kolo::perf {
namespace {

/// MPI_DATATYPE_NULL if MPI has no such type.
MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return MPI_FLOAT;
    case DataType::kFloat64:
      return MPI_DOUBLE;
    case DataType::kInt64:
      return MPI_INT64_T;
    case DataType::kInt32:
      return MPI_INT32_T;
    case DataType::kInt16:
      return MPI_INT16_T;
    case DataType::kInt8:
      return MPI_INT8_T;
    case DataType::kUInt8:
      return MPI_UINT8_T;
    case DataType::kBool:
      return MPI_C_BOOL;
    case DataType::kComplex64:
      return MPI_C_FLOAT_COMPLEX;
    case DataType::kComplex128:
      return MPI_C_DOUBLE_COMPLEX;
    case DataType::kBFloat16:
    case DataType::kFloat16:
      return MPI_DATATYPE_NULL;
  }
  return MPI_DATATYPE_NULL;
}

/// MPI_OP_NULL if MPI has no such operation for that type.
MPI_Op mpi_op(DataType type, ReduceOp op) {
  const bool is_bool = type == DataType::kBool;
  switch (op) {
    case ReduceOp::kSum:
      return is_bool ? MPI_LOR : MPI_SUM;
    case ReduceOp::kMin:
      return is_bool ? MPI_LAND : MPI_MIN;
    case ReduceOp::kMax:
      return is_bool ? MPI_LOR : MPI_MAX;
    case ReduceOp::kProduct:
      return is_bool ? MPI_LAND : MPI_PROD;
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

class MpiEngine final : public Engine {
 public:
  MpiEngine() { MPI_Comm_split(MPI_COMM_WORLD, 0, rank(), &world_); }
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;
  ~MpiEngine() override {
    MPI_Comm_free(&world_);
    MPI_Finalize();
  }

  std::string_view name() const override { return "mpi"; }

  bool supports(const Problem& problem, bool in_place) const override {
    if (problem.count > std::numeric_limits<int>::max()) return false;
    if (mpi_type(problem.type) == MPI_DATATYPE_NULL) return false;
    if (reduces(problem.collective) && (mpi_op(problem.type, problem.op) == MPI_OP_NULL ||
                                        !is_supported(problem.type, problem.op))) {
      return false;
    }
    if (problem.collective == Collective::kBroadcast) return in_place;
    return !in_place || place_in_output(problem, rank()).has_value();
  }

  void prepare(const Problem& problem) override {
    type_ = mpi_type(problem.type);
    op_ = mpi_op(problem.type, problem.op);
  }

  // On an error, MPI's default error handler ends the program with MPI's own message.
  void run(const Problem& problem, const std::byte* input, std::byte* output,
           bool in_place) override {
    const int count = static_cast<int>(problem.count);
    const void* const from = in_place ? MPI_IN_PLACE : input;
    switch (problem.collective) {
      case Collective::kAllreduce:
        MPI_Allreduce(from, output, count, type_, op_, world_);
        return;
      case Collective::kBroadcast:
        MPI_Bcast(output, count, type_, problem.root, world_);
        return;
      case Collective::kAllgather:
        MPI_Allgather(from, count, type_, output, count, type_, world_);
        return;
      case Collective::kAlltoall:
        MPI_Alltoall(from, count, type_, output, count, type_, world_);
        return;
      case Collective::kReducescatter:
        MPI_Reduce_scatter_block(from, output, count, type_, op_, world_);
        return;
      case Collective::kGather:
        MPI_Gather(from, count, type_, output, count, type_, problem.root, world_);
        return;
      case Collective::kScatter:
        MPI_Scatter(from, count, type_, output, count, type_, problem.root, world_);
        return;
      case Collective::kSendrecv:
        MPI_Sendrecv(from, count, type_, (rank() + 1) % size(), 0, output, count, type_,
                     (rank() + size() - 1) % size(), 0, world_, MPI_STATUS_IGNORE);
        return;
      case Collective::kBarrier:
        MPI_Barrier(world_);
        return;
    }
  }

 private:
  MPI_Comm world_ = MPI_COMM_NULL;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op op_ = MPI_OP_NULL;
};

}  // namespace

void begin_mpi() { MPI_Init(nullptr, nullptr); }

Result<std::unique_ptr<Engine>> mpi_engine() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != size()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--compare mpi: MPI has {} ranks here and kolo {}; start kolo-perf "
                             "under the mpirun of the MPI that it is linked with",
                             ranks, size())};
  }
  return std::unique_ptr<Engine>(std::make_unique<MpiEngine>());
}

}  // namespace kolo::perf
