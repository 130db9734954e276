#include "tests/support/local_world.h"

#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/reserved_memory.h"
#include "transport/loopback/loopback_hub.h"
#include "transport/loopback/loopback_transport.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

namespace kolo::test {

void run_local_world(int size, const std::function<void(int, Runtime&)>& body,
                     const LocalWorldOptions& options) {
  MemoryStore store;
  LoopbackHub hub(size);
  const auto rank_main = [&](int rank) {
    Environment::Variables variables = options.variables;
    if (!options.hosts.empty())
      variables["KOLO_HOST_ID"] = std::to_string(options.hosts[static_cast<std::size_t>(rank)]);
    variables.try_emplace("KOLO_FLIGHT_RECORDER", "0");
    // CTest runs some tests again over a tree.
    if (const auto degree = Environment::of_process().get("KOLO_CONTROL_DEGREE"))
      variables.try_emplace("KOLO_CONTROL_DEGREE", *degree);
    auto config = Config::from_environment(Environment(std::move(variables)));
    ASSERT_TRUE(config.ok()) << config.error().message;
    std::unique_ptr<Transport> transport = std::make_unique<LoopbackTransport>(hub, rank);
    if (options.decorate) transport = options.decorate(rank, std::move(transport));
    StoreBootstrap bootstrap(store, rank, size);
    Log log(config->log_level);
    ReservedMemory reserved = reserved_through(*transport);
    RuntimeParts parts{*std::move(config), std::move(log), std::move(transport),
                       std::move(reserved), options.process_sets};
    if (options.measured_exchange)
      parts.measured_exchange = &options.measured_exchange->at(static_cast<std::size_t>(rank));
    if (options.accelerator) {
      parts.open_accelerator = [&](const World& world, std::string& reason) {
        reason = "the test gives it none";
        return options.accelerator(world.rank());
      };
    }
    parts.open_nccl = [&]() -> Result<std::shared_ptr<NcclApi>> {
      if (options.nccl != nullptr) return options.nccl;
      return Error{ErrorCode::kUnsupported, "the test gives it no NCCL"};
    };
    auto runtime = Runtime::start(bootstrap, std::move(parts));
    if (!runtime.ok() && options.refused) return options.refused(runtime.error());
    ASSERT_TRUE(runtime.ok()) << runtime.error().message;
    body(rank, **runtime);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(rank_main, rank);
  for (std::thread& thread : threads) thread.join();
}

std::vector<Error> refusals(int size, LocalWorldOptions options) {
  std::vector<Error> errors;
  std::mutex mutex;
  options.refused = [&](const Error& error) {
    const std::lock_guard lock(mutex);
    errors.push_back(error);
  };
  run_local_world(
      size, [](int, Runtime&) { FAIL() << "it started"; }, options);
  EXPECT_EQ(errors.size(), static_cast<std::size_t>(size));
  return errors;
}

std::shared_ptr<Work> submit(Runtime& runtime, Submission submission) {
  auto work = runtime.submit(std::move(submission));
  EXPECT_TRUE(work.ok()) << work.error().message;
  return work.ok() ? *std::move(work) : nullptr;
}

Submission allreduce_of(const std::string& name, std::vector<float>& values, ReduceOp op) {
  Submission submission;
  submission.name = name;
  submission.signature.op = op;
  submission.signature.shape = {static_cast<std::int64_t>(values.size())};
  submission.input = reinterpret_cast<const std::byte*>(values.data());
  submission.output = reinterpret_cast<std::byte*>(values.data());
  return submission;
}

}  // namespace kolo::test
