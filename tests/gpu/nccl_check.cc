// nccl_check: kolo's all-reduces against NCCL's on this machine's GPUs: equal results for every
// type and operation, the same training, the behaviour on failures, and the bandwidth of each. One
// rank per GPU, as threads.
// Ends with one line for tools/gpu_check; exit status 77 without a GPU or NCCL. It has run on one
// GPU with one rank; not yet on several.
#include "runtime/device/element.h"
#include "tests/support/local_world.h"
#include "tests/support/small_training.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace kolo::test {
namespace {

/// Contents of the last line.
struct Summary {
  int compared = 0;
  double apart = 0;                     ///< largest relative difference of the losses
  std::map<std::string, double> busbw;  ///< GB/s, by KOLO_OPERATIONS
};
Summary& summary() {
  static Summary all;
  return all;
}

int gpus() { return std::min(find_accelerators().count, 8); }

/// Rank r is on GPU r, or all ranks are on `ordinal`.
LocalWorldOptions on_gpus(const std::string& operations, int ordinal = -1) {
  LocalWorldOptions options;
  options.variables["KOLO_OPERATIONS"] = operations;
  options.accelerator = [ordinal](int rank) {
    return open_accelerator(ordinal < 0 ? rank : ordinal);
  };
  if (operations == "nccl") {
    auto nccl = open_nccl();
    EXPECT_TRUE(nccl.ok()) << nccl.error().message;
    if (nccl.ok()) options.nccl = *std::move(nccl);
  }
  return options;
}

/// A rank's memory on its GPU, and a stream that fills, reads and orders it.
class Tensor {
 public:
  Tensor(Runtime& runtime, DataType type, std::size_t count)
      : type_(type),
        count_(count),
        stream_(*runtime.accelerator()->new_stream()),
        memory_(*runtime.accelerator()->allocate(count * size_of(type))),
        host_(*runtime.accelerator()->allocate_pinned(count * size_of(type))) {}

  Status put(int rank) {
    for (std::size_t i = 0; i < count_; ++i) {
      const int small = (static_cast<int>(i % 5) + rank) % 3;
      store_element(type_, host_->bytes().data() + i * size_of(type_),
                    static_cast<double>(type_ == DataType::kBool ? small % 2 : small));
    }
    return stream_->copy(data(), host_->bytes().data(), host_->bytes().size());
  }
  Status put(const std::vector<float>& values) {
    std::memcpy(host_->bytes().data(), values.data(), host_->bytes().size());
    return stream_->copy(data(), host_->bytes().data(), host_->bytes().size());
  }
  Status get(std::vector<float>& values) {
    std::vector<std::byte> bytes;
    KOLO_TRY(get(bytes));
    values.resize(count_);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return {};
  }
  Status get(std::vector<std::byte>& bytes) {
    KOLO_TRY(stream_->copy(host_->bytes().data(), data(), host_->bytes().size()));
    KOLO_TRY(synchronize());
    bytes.assign(host_->bytes().begin(), host_->bytes().end());
    return {};
  }
  Status synchronize() {
    KOLO_ASSIGN(const auto event, stream_->record());
    return event->synchronize();
  }
  Submission submission(const std::string& name, ReduceOp op) {
    Submission call;
    call.name = name;
    call.signature.type = type_;
    call.signature.op = op;
    call.signature.shape = {static_cast<std::int64_t>(count_)};
    call.input = call.output = data();
    call.stream = CudaStream{stream_->native()};
    return call;
  }
  /// The reduction comes before later work of the tensor's stream.
  Status reduce(Runtime& runtime, const std::string& name, ReduceOp op) {
    KOLO_ASSIGN(const auto work, runtime.submit(submission(name, op)));
    return finish(*work);
  }
  Status finish(Work& work) {
    KOLO_TRY(work.wait());
    return work.order({stream_->native()});
  }

 private:
  std::byte* data() { return memory_->bytes().data(); }

  const DataType type_;
  const std::size_t count_;
  const std::unique_ptr<DeviceStream> stream_;
  const std::unique_ptr<DeviceMemory> memory_;
  const std::unique_ptr<DeviceMemory> host_;
};

/// From "float32 sum 1001" to rank 0's result, for all that NCCL supports.
using Results = std::map<std::string, std::vector<std::byte>>;

Results all_results(const std::string& operations) {
  Results results;
  run_local_world(
      gpus(),
      [&](int rank, Runtime& runtime) {
        for (int t = 0; t < kDataTypeCount; ++t)
          for (int o = 0; o < kReduceOpCount; ++o)
            for (const std::size_t count : {1U, 1001U, 1U << 20}) {
              const auto type = static_cast<DataType>(t);
              const auto op = static_cast<ReduceOp>(o);
              if (!nccl_reduction(type, op).ok()) continue;
              const std::string name =
                  fmt::format("{} {} {}", to_string(type), to_string(op), count);
              Tensor tensor(runtime, type, count);
              std::vector<std::byte> bytes;
              Status status = tensor.put(rank);
              if (status.ok()) status = tensor.reduce(runtime, name, op);
              if (status.ok()) status = tensor.get(bytes);
              ASSERT_TRUE(status.ok()) << name << ": " << status.error().message;
              if (rank == 0) results[name] = std::move(bytes);
            }
      },
      on_gpus(operations));
  return results;
}

TEST(NcclCheck, EveryTypeAndOperationIsEqual) {
  const Results by_kolo = all_results("kolo");
  const Results by_nccl = all_results("nccl");
  ASSERT_EQ(by_kolo.size(), by_nccl.size());
  for (const auto& [name, bytes] : by_kolo) {
    EXPECT_TRUE(by_nccl.at(name) == bytes) << name;
    ++summary().compared;
  }
}

/// The ranks' mean losses. Gradients are averaged on the GPUs, all gradients of a step at once.
std::vector<double> losses_by(const std::string& operations) {
  std::vector<double> losses;
  run_local_world(
      gpus(),
      [&](int rank, Runtime& runtime) {
        std::vector<std::unique_ptr<Tensor>> tensors;
        const auto all = [&](Arrays& gradients) -> Status {
          std::vector<std::shared_ptr<Work>> works;
          for (std::size_t t = 0; t < gradients.size(); ++t) {
            if (t == tensors.size())
              tensors.push_back(
                  std::make_unique<Tensor>(runtime, DataType::kFloat32, gradients[t].size()));
            KOLO_TRY(tensors[t]->put(gradients[t]));
            auto call = tensors[t]->submission(fmt::format("g{}", t), ReduceOp::kAverage);
            KOLO_ASSIGN(auto work, runtime.submit(std::move(call)));
            works.push_back(std::move(work));
          }
          for (std::size_t t = 0; t < gradients.size(); ++t) {
            KOLO_TRY(tensors[t]->finish(*works[t]));
            KOLO_TRY(tensors[t]->get(gradients[t]));
          }
          return {};
        };
        const auto average = [&](Arrays& gradients) {
          const Status status = all(gradients);
          ASSERT_TRUE(status.ok()) << status.error().message;
        };
        const auto seen = SmallTraining(rank).run(kTrajectorySteps, average);
        if (rank == 0) losses = seen;
      },
      on_gpus(operations));
  return losses;
}

TEST(NcclCheck, TrainingTakesTheSameSteps) {
  const auto by_kolo = losses_by("kolo");
  const auto by_nccl = losses_by("nccl");
  summary().apart = largest_difference(by_nccl, by_kolo);
  EXPECT_LT(summary().apart, kTrajectoryTolerance);
  EXPECT_LT(by_nccl.back(), 0.2 * by_nccl.front());
}

TEST(NcclCheck, RanksThatShareAGpuAreRefusedByName) {
  const auto nccl = open_nccl();
  ASSERT_TRUE(nccl.ok());
  if ((*nccl)->version() >= 23000) return;  // this version accepts them
  for (const Error& error : refusals(2, on_gpus("nccl", 0)))
    EXPECT_THAT(error.message, testing::HasSubstr("ranks 0 and 1 share GPU-"));
}

TEST(NcclCheck, WhatNcclHasNotFailsAloneAndAnAbortEndsWhatHangs) {
  run_local_world(
      gpus(),
      [](int rank, Runtime& runtime) {
        Tensor small(runtime, DataType::kInt16, 8);
        const Status refused = small.reduce(runtime, "int16", ReduceOp::kSum);
        ASSERT_FALSE(refused.ok());
        EXPECT_THAT(refused.error().message, testing::HasSubstr("KOLO_OPERATIONS=kolo"));
        Tensor tensor(runtime, DataType::kFloat32, 1024);
        ASSERT_TRUE(tensor.put(rank).ok());
        ASSERT_TRUE(tensor.reduce(runtime, "fine", ReduceOp::kSum).ok());
        if (runtime.world().size() == 1) return;
        // The last rank leaves the others in NCCL's kernel.
        if (rank + 1 == runtime.world().size()) return runtime.abort("the check wants it");
        const auto work = runtime.submit_ordered(tensor.submission("", ReduceOp::kSum));
        if (work.ok()) static_cast<void>((*work)->wait());
        static_cast<void>(tensor.synchronize());
        EXPECT_FALSE(tensor.reduce(runtime, "after", ReduceOp::kSum).ok());
      },
      on_gpus("nccl"));
}

TEST(NcclCheck, Bandwidth) {
  if (gpus() < 2) GTEST_SKIP() << "one rank moves nothing";
  constexpr std::size_t kCount = (256 << 20) / sizeof(float);
  constexpr int kRounds = 20;
  for (const char* operations : {"kolo", "nccl"}) {
    run_local_world(
        gpus(),
        [&](int rank, Runtime& runtime) {
          Tensor tensor(runtime, DataType::kFloat32, kCount);
          ASSERT_TRUE(tensor.put(rank).ok());
          std::chrono::steady_clock::time_point begin;
          for (int round = -3; round < kRounds; ++round) {
            if (round == 0) {
              ASSERT_TRUE(tensor.synchronize().ok());
              begin = std::chrono::steady_clock::now();
            }
            ASSERT_TRUE(tensor.reduce(runtime, "x", ReduceOp::kSum).ok());
          }
          ASSERT_TRUE(tensor.synchronize().ok());
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
          const double ranks = runtime.world().size();
          if (rank == 0) {
            summary().busbw[operations] =
                2 * (ranks - 1) / ranks * kRounds * kCount * sizeof(float) / took.count() / 1e9;
          }
        },
        on_gpus(operations));
  }
}

}  // namespace
}  // namespace kolo::test

int main(int argc, char** argv) {
  using namespace kolo;
  testing::InitGoogleTest(&argc, argv);
  const Accelerators found = find_accelerators();
  const auto nccl = open_nccl();
  if (found.count == 0 || !nccl.ok()) {
    fmt::print("not run: {}\n",
               found.count == 0 ? "no GPU: " + found.reason : nccl.error().message);
    return 77;
  }
  const int result = RUN_ALL_TESTS();
  auto& summary = test::summary();
  const std::string busbw =
      test::gpus() < 2 ? "one rank: nothing was reduced"
                       : fmt::format("busbw at 256 MiB: kolo {:.1f} GB/s, NCCL {:.1f} GB/s",
                                     summary.busbw["kolo"], summary.busbw["nccl"]);
  fmt::print("{} GPUs, NCCL {}, {} results compared, {} losses {:.1e} apart at most, {}\n",
             test::gpus(), nccl_version_text((*nccl)->version()), summary.compared,
             test::kTrajectorySteps, summary.apart, busbw);
  return result;
}
