// kolo's CUDA device over the emulated CUDA of tests/support/emulated_cuda: its calls and their
// devices, the translation of errors, and that it leaves nothing behind.
#include "runtime/device/accelerator.h"
#include "runtime/device/cuda/peer_key.h"
#include "tests/support/emulated_cuda/emulated_cuda.h"
#include "tests/support/emulated_cuda/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

using emulated_cuda::alive;
using emulated_cuda::fail_next;
using testing::AllOf;
using testing::HasSubstr;

/// Set before the first call, since devices are counted once.
[[maybe_unused]] const int kTwo = setenv("EMULATED_GPUS", "2", 1);

Status finish(DeviceStream& stream) {
  const auto event = stream.record();
  if (!event.ok()) return event.error();
  return (*event)->synchronize();
}

Status copy_one(DeviceStream& stream, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  return stream.combine({.type = DataType::kUInt8}, {{&from, 1}, {&to, 1}, {&bytes, 1}});
}

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    emulated_cuda::mend_devices();
    before_ = alive();
  }
  void TearDown() override {
    if (!leaves_something_) {
      EXPECT_EQ(alive(), before_);
    }
    EXPECT_EQ(emulated_cuda::pending_error(), cudaSuccess);
    EXPECT_EQ(emulated_cuda::pushed_contexts(), 0U);
    EXPECT_EQ(emulated_cuda::late_loads(), 0U);
    emulated_cuda::mend_devices();
  }

  static std::unique_ptr<Accelerator> open(int ordinal = 0) {
    auto opened = open_accelerator(ordinal);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.ok() ? std::move(*opened) : nullptr;
  }

  /// Uses one of everything; returns the first error.
  static Status use_all() {
    const auto opened = open_accelerator(0);
    if (!opened.ok()) return opened.error();
    Accelerator& device = **opened;
    const auto stream = device.new_stream();
    if (!stream.ok()) return stream.error();
    const auto memory = device.allocate(4096);
    if (!memory.ok()) return memory.error();
    const auto pinned = device.allocate_pinned(4096);
    if (!pinned.ok()) return pinned.error();
    std::vector<std::byte> host(4096);
    const auto pin = device.pin(host);
    if (!pin.ok()) return pin.error();
    const auto key = device.export_memory(**memory);
    if (!key.ok()) return key.error();
    std::byte* const there = (*memory)->bytes().data();
    for (const Status& done :
         {(*stream)->zero(there, 4096), (*stream)->copy(there, host.data(), 4096),
          copy_one(**stream, there, host.data(), 4096),
          (*stream)->adasum(DataType::kFloat32, there, there, there + 400, 100)})
      if (!done.ok()) return done;
    const auto event = (*stream)->record();
    if (!event.ok()) return event.error();
    for (const Status& done : {(*stream)->wait(**event), (*event)->synchronize()})
      if (!done.ok()) return done;
    const auto is_done = (*event)->is_done();
    if (!is_done.ok()) return is_done.error();
    return device.synchronize();
  }

  bool leaves_something_ = false;

 private:
  emulated_cuda::Alive before_;
};

/// Blocks the stream until this object is destroyed.
class Hold {
 public:
  explicit Hold(DeviceStream& stream) {
    std::shared_future<void> until = end_.get_future().share();
    const auto native = static_cast<cudaStream_t>(stream.native());
    EXPECT_EQ(emulated_cuda::give(native, emulated_cuda::gpu(0), [until] { until.wait(); }),
              cudaSuccess);
  }
  void end() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

TEST_F(CudaDevice, WorksOnItsDeviceWhicheverTheThreadHas) {
  for (const int ordinal : {0, 1}) {
    const auto device = open(ordinal);
    ASSERT_EQ(cudaSetDevice(1 - ordinal), cudaSuccess);
    const auto stream = *device->new_stream();
    const auto memory = *device->allocate(3000);
    EXPECT_EQ(device->location_of(memory->bytes().data()), MemoryLocation::kDevice);
    const auto pinned = *device->allocate_pinned(3000);
    std::iota(reinterpret_cast<std::uint8_t*>(pinned->bytes().data()),
              reinterpret_cast<std::uint8_t*>(pinned->bytes().data()) + 3000, std::uint8_t{0});
    const auto back = *device->allocate_pinned(3000);
    std::byte* const there = memory->bytes().data();
    ASSERT_TRUE(copy_one(*stream, there, pinned->bytes().data(), 3000).ok());
    ASSERT_TRUE(stream->copy(back->bytes().data(), there, 3000).ok());
    ASSERT_TRUE(finish(*stream).ok());
    EXPECT_EQ(std::memcmp(back->bytes().data(), pinned->bytes().data(), 3000), 0);
    EXPECT_EQ(emulated_cuda::current_device(), 1 - ordinal);

    const auto other = open(1 - ordinal);
    EXPECT_EQ(other->location_of(there), MemoryLocation::kOtherDevice);
  }
}

TEST_F(CudaDevice, EventsStandForWhatWasGivenBefore) {
  const auto device = open();
  const auto first = *device->new_stream();
  const auto second = *device->new_stream();
  for (int round = 0; round < 3; ++round) {  // events return to the pool and are reused
    Hold hold(*first);
    const auto held = *first->record();
    EXPECT_FALSE(*held->is_done());
    EXPECT_EQ(emulated_cuda::pending_error(), cudaSuccess);
    EXPECT_TRUE(second->wait(*held).ok());
    const auto behind = *second->record();
    EXPECT_FALSE(*behind->is_done());
    const auto user = *device->new_stream();  // like another library's stream
    EXPECT_TRUE(held->order(user->native()).ok());
    const auto ordered = *device->record(user->native());
    EXPECT_FALSE(*ordered->is_done());
    hold.end();
    EXPECT_TRUE(behind->synchronize().ok());
    EXPECT_TRUE(ordered->synchronize().ok());
    EXPECT_TRUE(*held->is_done());
    EXPECT_TRUE(*behind->is_done());
  }
  EXPECT_LE(alive().events, 3U);
}

TEST_F(CudaDevice, StreamsThatCaptureAreRefused) {
  const auto device = open();
  const auto stream = *device->new_stream();
  const auto event = *stream->record();
  for (void* const native : {stream->native(), static_cast<void*>(nullptr)}) {
    SCOPED_TRACE(native == nullptr ? "the default stream" : "a stream");
    emulated_cuda::capture(true);
    const auto recorded = device->record(native);
    const Status ordered = event->order(native);
    emulated_cuda::capture(false);
    ASSERT_FALSE(recorded.ok());
    EXPECT_EQ(recorded.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(recorded.error().message, HasSubstr("captures a graph"));
    ASSERT_FALSE(ordered.ok());
    EXPECT_EQ(ordered.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(ordered.error().message, HasSubstr("captures a graph"));
  }
}

TEST_F(CudaDevice, ACaptureElsewhereForbidsNothingButWaitingForTheDevice) {
  const Status before = use_all();
  ASSERT_TRUE(before.ok()) << before.error().message;
  emulated_cuda::capture_elsewhere(true);
  const Status during = use_all();
  emulated_cuda::capture_elsewhere(false);
  ASSERT_FALSE(during.ok());
  EXPECT_EQ(during.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(during.error().message,
              AllOf(HasSubstr("cudaDeviceSynchronize failed"), HasSubstr("is being captured")));
}

TEST_F(CudaDevice, StreamsOfAnotherDeviceAreRefused) {
  const auto device = open(0);
  const auto other = open(1);
  const auto stream = *other->new_stream();
  const auto refused = device->record(stream->native());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("of another device"));
}

TEST_F(CudaDevice, MemoryIsImportedInItsOwnProcessToo) {
  const auto device = open(0);
  const auto other = open(1);
  const auto memory = *device->allocate(4096);
  const std::string key = *device->export_memory(*memory);
  for (Accelerator* const importer : {device.get(), other.get()}) {
    const auto imported = *importer->import_memory(key);
    EXPECT_EQ(imported->bytes().data(), memory->bytes().data());
    EXPECT_EQ(imported->bytes().size(), 4096U);
  }
  // Imported memory is reachable, the second time like the first.
  const auto stream = *other->new_stream();
  const auto here = *other->allocate(4096);
  EXPECT_TRUE(copy_one(*stream, here->bytes().data(), memory->bytes().data(), 4096).ok());
  EXPECT_TRUE(finish(*stream).ok());
  EXPECT_TRUE(other->import_memory(key).ok());
  ASSERT_EQ(setenv("EMULATED_GPUS_APART", "1", 1), 0);
  const auto refused = other->import_memory(key);
  unsetenv("EMULATED_GPUS_APART");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr(to_string(device->info().uuid)),
                    HasSubstr(to_string(other->info().uuid)), HasSubstr("nvidia-smi topo")));
}

TEST_F(CudaDevice, MemoryThatAnotherContainerDoesNotMapIsNoFailureOfTheDevice) {
  const auto device = open(0);
  const auto memory = *device->allocate(4096);
  cuda::PeerKey key;
  ASSERT_TRUE(key.parse(*device->export_memory(*memory)));
  ++key.process[0];  // as of another process, whose memory CUDA does not know
  const auto refused = device->import_memory(key.text());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("cudaIpcOpenMemHandle failed"), HasSubstr("--pid=host")));
}

struct Somewhere final : DeviceMemory {
  explicit Somewhere(void* memory) : begin(static_cast<std::byte*>(memory)) {}
  std::span<std::byte> bytes() const override { return {begin, 64}; }
  std::byte* begin;
};

TEST_F(CudaDevice, ExpandableSegmentsAreNotExported) {
  const auto device = open();
  const Somewhere pooled(emulated_cuda::allocate_in_pool(64));
  const auto refused = device->export_memory(pooled);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("expandable_segments"));
  EXPECT_EQ(cudaFree(pooled.begin), cudaSuccess);
}

TEST_F(CudaDevice, MemoryIsPinnedOnce) {
  const auto device = open();
  std::vector<std::byte> host(1 << 20);
  const auto pin = *device->pin(host);
  EXPECT_EQ(device->location_of(host.data() + 5000), MemoryLocation::kPinnedHost);
  const auto again = device->pin({host.data() + 4096, 4096});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(again.error().message, HasSubstr("pinned already"));
}

TEST_F(CudaDevice, HasNoMoreMemoryThanThereIs) {
  const auto device = open();
  const auto refused = device->allocate(std::size_t{1} << 50);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("1125899906842624"), HasSubstr("17179869184")));
}

/// The CUDA call that fails, and kolo's error.
struct Failing {
  const char* function;
  cudaError_t error;
  ErrorCode code;
  const char* says;
};
void PrintTo(const Failing& failing, std::ostream* out) { *out << failing.function; }

class FailingCall : public CudaDevice, public testing::WithParamInterface<Failing> {};
constexpr cudaError_t kUnknown = cudaErrorUnknown;
INSTANTIATE_TEST_SUITE_P(
    Calls, FailingCall,
    testing::Values(
        Failing{"cudaGetDeviceCount", cudaErrorInsufficientDriver, ErrorCode::kUnsupported,
                "there is no CUDA device 0"},
        Failing{"cudaGetDeviceProperties", kUnknown, ErrorCode::kDevice, "device 0"},
        Failing{"cudaDeviceGetPCIBusId", kUnknown, ErrorCode::kDevice, "device 0"},
        Failing{"cuDevicePrimaryCtxRetain", cudaErrorMemoryAllocation, ErrorCode::kOutOfMemory,
                "free device memory"},
        Failing{"cudaGetDeviceCount", cudaErrorSystemNotReady, ErrorCode::kUnsupported,
                "nvidia-fabricmanager"},
        Failing{"cudaFuncGetAttributes", cudaErrorNoKernelImageForDevice, ErrorCode::kUnsupported,
                "KOLO_CUDA_ARCHITECTURES"},
        Failing{"cudaFuncGetAttributes", cudaErrorInvalidDeviceFunction, ErrorCode::kUnsupported,
                "KOLO_CUDA_ARCHITECTURES"},
        Failing{"cudaDeviceGetStreamPriorityRange", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaStreamCreateWithPriority", cudaErrorMemoryAllocation, ErrorCode::kOutOfMemory,
                "GPU-6b6f6c6f"},
        Failing{"cudaMalloc", cudaErrorMemoryAllocation, ErrorCode::kOutOfMemory, "4096 bytes"},
        Failing{"cudaMalloc", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaMemsetAsync", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaStreamSynchronize", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaHostAlloc", cudaErrorMemoryAllocation, ErrorCode::kOutOfMemory,
                "limit of the container"},
        Failing{"cudaDeviceGetAttribute", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaHostRegister", cudaErrorNotSupported, ErrorCode::kUnsupported, "cannot do it"},
        Failing{"cudaPointerGetAttributes", cudaErrorInvalidValue, ErrorCode::kInvalidArgument,
                "cannot be exported"},
        Failing{"cudaIpcGetMemHandle", cudaErrorNotSupported, ErrorCode::kUnsupported,
                "cudaIpcGetMemHandle failed"},
        Failing{"cudaMemcpyAsync", kUnknown, ErrorCode::kDevice, "cudaMemcpyAsync failed"},
        Failing{"cudaLaunchKernel", cudaErrorLaunchFailure, ErrorCode::kDevice,
                "cudaLaunchKernel failed"},
        Failing{"cudaEventCreateWithFlags", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaEventRecord", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaEventRecord", cudaErrorStreamCaptureImplicit, ErrorCode::kUnsupported,
                "is being captured"},
        Failing{"cudaStreamWaitEvent", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"},
        Failing{"cudaStreamWaitEvent", cudaErrorStreamCaptureIsolation, ErrorCode::kUnsupported,
                "is being captured"},
        Failing{"cudaEventSynchronize", cudaErrorECCUncorrectable, ErrorCode::kDevice, "ECC"},
        Failing{"cudaEventQuery", cudaErrorIllegalAddress, ErrorCode::kDevice, "compute-sanitizer"},
        Failing{"cudaDeviceSynchronize", kUnknown, ErrorCode::kDevice, "GPU-6b6f6c6f"}));

TEST_P(FailingCall, IsANamedErrorAndLeavesNothing) {
  const auto [function, error, code, says] = GetParam();
  fail_next(function, error);
  const Status failed = use_all();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, code) << failed.error().message;
  EXPECT_THAT(failed.error().message, HasSubstr(says));
  const Status done = use_all();
  EXPECT_TRUE(done.ok()) << done.error().message;
}

TEST_F(CudaDevice, KernelsReachNoMemoryOfTheHostThatIsNotPinned) {
  leaves_something_ = true;  // a failed device frees nothing
  const auto device = open();
  const auto stream = *device->new_stream();
  const auto memory = *device->allocate(64);
  std::vector<std::byte> host(64);
  EXPECT_TRUE(copy_one(*stream, memory->bytes().data(), host.data(), 64).ok());
  const Status failed = finish(*stream);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kDevice);
  EXPECT_THAT(failed.error().message, AllOf(HasSubstr("cudaErrorIllegalAddress"),
                                            HasSubstr("nothing on this device works")));
  EXPECT_FALSE(device->allocate(64).ok());
  EXPECT_FALSE(device->new_stream().ok());
}

TEST_F(CudaDevice, ManyThreadsUseIt) {
  const auto device = open();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const auto stream = *device->new_stream();
        const auto memory = *device->allocate(1000);
        std::byte* const begin = memory->bytes().data();
        EXPECT_TRUE(copy_one(*stream, begin, begin + 500, 500).ok());
        const auto event = *stream->record();
        EXPECT_TRUE(event->synchronize().ok());
        EXPECT_TRUE(*event->is_done());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kolo::test
