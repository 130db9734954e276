// The real NCCL, loaded at first use, so that a kolo built with NCCL also runs where NCCL is not
// installed.
#include "runtime/base/check.h"
#include "runtime/device/cuda/cuda_context.h"
#include "runtime/nccl/nccl_api.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace kolo {
namespace {

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
template <auto kOurs, auto kTheirs>
constexpr bool kSame = static_cast<int>(kOurs) == static_cast<int>(kTheirs);
static_assert(kSame<NcclType::kInt8, ncclInt8> && kSame<NcclType::kUInt8, ncclUint8>);
static_assert(kSame<NcclType::kInt32, ncclInt32> && kSame<NcclType::kInt64, ncclInt64>);
static_assert(kSame<NcclType::kFloat16, ncclFloat16> && kSame<NcclType::kFloat32, ncclFloat32>);
static_assert(kSame<NcclType::kFloat64, ncclFloat64> && kSame<NcclType::kBFloat16, ncclBfloat16>);
static_assert(kSame<NcclOp::kSum, ncclSum> && kSame<NcclOp::kProduct, ncclProd>);
static_assert(kSame<NcclOp::kMax, ncclMax> && kSame<NcclOp::kMin, ncclMin>);
static_assert(kSame<NcclResult::kSuccess, ncclSuccess>);
static_assert(kSame<NcclResult::kUnhandledCudaError, ncclUnhandledCudaError>);
static_assert(kSame<NcclResult::kSystemError, ncclSystemError>);
static_assert(kSame<NcclResult::kInternalError, ncclInternalError>);
static_assert(kSame<NcclResult::kInvalidArgument, ncclInvalidArgument>);
static_assert(kSame<NcclResult::kInvalidUsage, ncclInvalidUsage>);
static_assert(kSame<NcclResult::kRemoteError, ncclRemoteError>);
static_assert(kSame<NcclResult::kInProgress, ncclInProgress>);

NcclResult ours(ncclResult_t result) {
  const bool known = result >= ncclSuccess && result <= ncclInProgress;
  return known ? static_cast<NcclResult>(result) : NcclResult::kInternalError;
}

struct Entries {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
};

class NcclLibrary final : public NcclApi {
 public:
  NcclLibrary(const Entries& entries, int version) : call_(entries), version_(version) {}

  int version() const override { return version_; }
  NcclResult get_unique_id(NcclUniqueId& id) override {
    ncclUniqueId theirs;
    const NcclResult result = ours(call_.get_unique_id(&theirs));
    std::memcpy(id.data(), theirs.internal, id.size());
    return result;
  }
  NcclResult init_rank(NcclHandle& handle, int size, const NcclUniqueId& id, int rank,
                       int ordinal) override {
    // NCCL uses the calling thread's device, so make `ordinal` current; the scope restores the
    // thread's own.
    const auto context = cuda::CudaContext::open(ordinal);
    if (!context.ok()) return NcclResult::kUnhandledCudaError;
    const cuda::CudaScope scope(**context);
    ncclUniqueId theirs;
    std::memcpy(theirs.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = call_.init_rank(&handle, size, theirs, rank, &config);
    if (handle != nullptr) {
      const std::lock_guard lock(mutex_);
      contexts_[handle] = *context;
    }
    return ours(result);
  }
  NcclResult async_error(NcclHandle handle, NcclResult& state) override {
    ncclResult_t theirs = ncclSuccess;
    const NcclResult result = ours(call_.async_error(handle, &theirs));
    state = ours(theirs);
    return result;
  }
  NcclResult all_reduce(const void* input, void* output, std::size_t count, NcclType type,
                        NcclOp op, NcclHandle handle, void* stream) override {
    const OnDevice scope(context_of(handle));
    return ours(call_.all_reduce(input, output, count, static_cast<ncclDataType_t>(type),
                                 static_cast<ncclRedOp_t>(op), handle,
                                 static_cast<cudaStream_t>(stream)));
  }
  NcclResult group_start() override { return ours(call_.group_start()); }
  NcclResult group_end(NcclHandle handle) override {
    const OnDevice scope(context_of(handle));
    return ours(call_.group_end());
  }
  NcclResult finalize(NcclHandle handle) override {
    const OnDevice scope(context_of(handle));
    return ours(call_.finalize(handle));
  }
  NcclResult destroy(NcclHandle handle) override {
    const OnDevice scope(forget(handle));
    return ours(call_.destroy(handle));
  }
  NcclResult abort(NcclHandle handle) override {
    const OnDevice scope(forget(handle));
    return ours(call_.abort(handle));
  }
  std::string error_string(NcclResult result) const override {
    return call_.error_string(static_cast<ncclResult_t>(result));
  }
  std::string last_error(NcclHandle handle) const override {
    const char* const text = call_.last_error(handle);
    return text == nullptr ? "" : text;
  }

 private:
  using ContextPointer = std::shared_ptr<const cuda::CudaContext>;

  /// Makes the communicator's device current during a call. NCCL sets its caller's device back
  /// afterwards. A thread without a device would thereby get a context on device 0 and waste memory
  /// there.
  class OnDevice {
   public:
    explicit OnDevice(ContextPointer context) : context_(std::move(context)) {
      if (context_ != nullptr) scope_.emplace(*context_);
    }

   private:
    ContextPointer context_;
    std::optional<cuda::CudaScope> scope_;
  };

  ContextPointer context_of(NcclHandle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = contexts_.find(handle);
    return found == contexts_.end() ? nullptr : found->second;
  }
  /// Removes and returns the context of a communicator that ends.
  ContextPointer forget(NcclHandle handle) {
    const std::lock_guard lock(mutex_);
    auto ended = contexts_.extract(handle);
    return ended.empty() ? nullptr : std::move(ended.mapped());
  }

  const Entries call_;
  const int version_;
  std::mutex mutex_;
  std::map<NcclHandle, ContextPointer> contexts_;  // device of each communicator; guarded by mutex_
};

template <class Function>
Status find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function != nullptr) return {};
  return KOLO_ERROR(kUnsupported, "libnccl.so.2 has no {}: kolo needs NCCL 2.14 or newer", name);
}

}  // namespace

bool nccl_is_built() { return true; }

// The library stays loaded, because its threads may outlive the caller.
Result<std::unique_ptr<NcclApi>> open_nccl() {
  std::string refused;
  void* library = nullptr;
  for (const char* name : {"libnccl.so.2", KOLO_NCCL_LIBRARY}) {
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    refused += std::string(refused.empty() ? "" : "; ") + ::dlerror();
  }
  if (library == nullptr) {
    return KOLO_ERROR(kUnsupported,
                      "NCCL cannot be loaded ({}): put the folder of libnccl.so.2 on "
                      "LD_LIBRARY_PATH, or set KOLO_OPERATIONS=kolo",
                      refused);
  }
  Entries call;
  KOLO_TRY(find(library, "ncclGetVersion", call.get_version));
  KOLO_TRY(find(library, "ncclGetUniqueId", call.get_unique_id));
  KOLO_TRY(find(library, "ncclCommInitRankConfig", call.init_rank));
  KOLO_TRY(find(library, "ncclCommGetAsyncError", call.async_error));
  KOLO_TRY(find(library, "ncclAllReduce", call.all_reduce));
  KOLO_TRY(find(library, "ncclGroupStart", call.group_start));
  KOLO_TRY(find(library, "ncclGroupEnd", call.group_end));
  KOLO_TRY(find(library, "ncclCommFinalize", call.finalize));
  KOLO_TRY(find(library, "ncclCommDestroy", call.destroy));
  KOLO_TRY(find(library, "ncclCommAbort", call.abort));
  KOLO_TRY(find(library, "ncclGetErrorString", call.error_string));
  KOLO_TRY(find(library, "ncclGetLastError", call.last_error));
  int version = 0;
  if (call.get_version(&version) != ncclSuccess)
    return KOLO_ERROR(kUnsupported, "libnccl.so.2 does not tell its version");
  return std::unique_ptr<NcclApi>(std::make_unique<NcclLibrary>(call, version));
}

}  // namespace kolo
