#include "bindings/core/init_options.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/mpi_bootstrap.h"
#include "runtime/bootstrap/pmix_bootstrap.h"

#include <exception>
#include <stdexcept>
#include <utility>

namespace kolo {
namespace {

class UserStore final : public Store {
 public:
  UserStore(std::shared_ptr<KeyValueStore> store, std::string group_name)
      : store_(std::move(store)), prefix_("kolo/" + std::move(group_name) + "/") {}

  Status set(std::string_view key, std::string value) override {
    try {
      store_->set(prefix_ + std::string(key), value);
      return {};
    } catch (const std::exception& error) {
      return KOLO_ERROR(kTransport, "InitOptions::store: set('{}') failed: {}", key, error.what());
    }
  }

  Result<std::string> get(std::string_view key, Deadline deadline) override {
    constexpr std::chrono::hours kLongest(24 * 365);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining(kLongest));
    try {
      return store_->get(prefix_ + std::string(key), left);
    } catch (const std::exception& error) {
      if (deadline.expired()) {
        return KOLO_ERROR(kTimeout, "InitOptions::store: '{}' was not set before the deadline: {}",
                          key, error.what());
      }
      return KOLO_ERROR(kTransport, "InitOptions::store: get('{}') failed: {}", key, error.what());
    }
  }

  Result<std::string> set_once(std::string_view key, std::string value) override {
    try {
      return store_->set_once(prefix_ + std::string(key), value);
    } catch (const std::logic_error& error) {  // as that of the default
      return KOLO_ERROR(kUnsupported, "InitOptions::store: {}", error.what());
    } catch (const std::exception& error) {
      return KOLO_ERROR(kTransport, "InitOptions::store: set_once('{}') failed: {}", key,
                        error.what());
    }
  }

 private:
  const std::shared_ptr<KeyValueStore> store_;
  const std::string prefix_;
};

}  // namespace

KeyValueStore::~KeyValueStore() = default;

std::string KeyValueStore::set_once(const std::string& key, const std::string&) {
  throw std::logic_error("the store has no set_once(), which '" + key + "' needs");
}

bool KeyValueStore::is_served_here() const { return false; }

Status check_options(const InitOptions& options) {
  if (options.timeout && options.timeout->count() < 1) {
    return KOLO_ERROR(kInvalidArgument, "InitOptions::timeout is {} s: expected at least 1",
                      options.timeout->count());
  }
  if (options.backend != "kolo" && options.backend != "nccl") {
    return KOLO_ERROR(kInvalidArgument,
                      "InitOptions::backend '{}' is unknown: expected one of kolo, nccl",
                      options.backend);
  }
  if (options.backend == "nccl" && !nccl_built()) {
    return KOLO_ERROR(kUnsupported,
                      "InitOptions::backend is 'nccl', but this build of kolo is without NCCL; "
                      "leave it at 'kolo'");
  }
  if (options.device && !cuda_built()) {
    return KOLO_ERROR(kUnsupported,
                      "InitOptions::device is {}, but this build of kolo is without CUDA; leave it "
                      "out",
                      *options.device);
  }
  return {};
}

Status check_process_sets(const InitOptions& options, bool is_elastic) {
  if (!is_elastic || options.process_sets.empty()) return {};
  return KOLO_ERROR(kUnsupported,
                    "InitOptions::process_sets names ranks, which come and go in an "
                    "elastic job; kolo::split_world() makes sets in each world");
}

RendezvousRequest request_of(const InitOptions& options) {
  return {.init_method = options.init_method,
          .rank = options.rank,
          .size = options.size,
          .local_rank = options.local_rank,
          .has_store = options.store != nullptr,
          .has_mpi_communicator = options.mpi_comm != nullptr,
          .mpi_built = mpi_built(),
          .open_mpi_version = open_mpi_version(),
          .pmix_built = pmix_built(),
          .mpi_running = mpi_is_running()};
}

std::vector<std::string> agreed_options(const InitOptions& options, const RendezvousMethod& way,
                                        std::size_t splits) {
  std::vector<std::string> agreed = {"init method: " + way.method, "backend: " + options.backend,
                                     "group name: " + options.group_name,
                                     "calls of split_world(): " + std::to_string(splits)};
  // The user's store counts no ranks, as kolo's own do.
  if (way.meeting == Meeting::kStore)
    agreed.push_back("number of ranks: " + std::to_string(way.size));
  return agreed;
}

std::unique_ptr<Store> adapt_store(std::shared_ptr<KeyValueStore> store, std::string group_name) {
  return std::make_unique<UserStore>(std::move(store), std::move(group_name));
}

}  // namespace kolo
