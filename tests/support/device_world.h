// Worlds whose ranks have emulated accelerators, and memory on them. Header-only.
#pragma once

#include "runtime/device/element.h"
#include "tests/support/emulated_accelerator.h"
#include "tests/support/local_world.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

/// How the ranks' devices relate to each other.
enum class Devices {
  kMapped,         ///< one each, which reach each other
  kShared,         ///< ranks 0 and 1 share one, and so on
  kStaged,         ///< one each, which do not reach each other
  kTwoHosts,       ///< one each, on two hosts, staged as a whole
  kHostsPiped,     ///< one each, on two hosts, in pieces that are much shorter than tensors
  kHostsShared,    ///< as kHostsPiped, with two ranks of a host per device
  kHostsUnmapped,  ///< as kHostsPiped, where devices of a host do not reach each other
};

inline LocalWorldOptions with_devices(int size, Devices devices) {
  LocalWorldOptions options;
  options.variables = {{"KOLO_DEVICE_MEMORY", "16M"}, {"KOLO_DEVICE_ARENA", "8M"}};
  std::vector<std::shared_ptr<EmulatedDevice>> all;
  for (int rank = 0; rank < size; ++rank) {
    const int host = rank * 2 / size;
    const bool shares = devices == Devices::kShared || devices == Devices::kHostsShared;
    const int first = devices == Devices::kHostsShared ? (host * size + 1) / 2 : 0;
    const int number = shares ? rank - (rank - first) % 2 : rank;
    if (number < rank) {
      all.push_back(all[static_cast<std::size_t>(rank - 1)]);
    } else {
      all.push_back(std::make_shared<EmulatedDevice>(static_cast<std::uint8_t>(number + 1)));
    }
    if (devices == Devices::kStaged || devices == Devices::kHostsUnmapped)
      all.back()->forbid_import();
    if (devices >= Devices::kTwoHosts) options.hosts.push_back(host);
    if (devices > Devices::kTwoHosts) options.variables["KOLO_DEVICE_CHUNK"] = "64";
  }
  options.accelerator = [all](int rank) -> std::unique_ptr<Accelerator> {
    return std::make_unique<EmulatedAccelerator>(all[static_cast<std::size_t>(rank)], 0);
  };
  return options;
}

/// `value`, after some microseconds of work.
inline double slowly(std::size_t seed, double value) {
  volatile std::size_t work = seed;
  for (int i = 0; i < 20'000; ++i) work = work * 31 + 7;
  return value;
}

/// A stream of the test's own, like another library's, and memory that the stream fills and reads.
class DeviceUser {
 public:
  explicit DeviceUser(Runtime& runtime)
      : accelerator_(*runtime.accelerator()), stream_(*accelerator_.new_stream()) {}

  DeviceUser(const DeviceUser&) = delete;
  DeviceUser& operator=(const DeviceUser&) = delete;
  /// Waits for the stream, so that its memory may go.
  ~DeviceUser() {
    std::promise<void> done;
    EmulatedAccelerator::give(stream_->native(), [&] { done.set_value(); });
    done.get_future().wait();
  }

  CudaStream stream() const { return {stream_->native()}; }

  /// Memory of `count` elements, for the test's lifetime; zero elements have an address, too.
  std::byte* allocate(DataType type, std::size_t count) {
    memory_.push_back(*accelerator_.allocate(std::max<std::size_t>(count, 1) * size_of(type)));
    return memory_.back()->bytes().data();
  }
  /// On the stream: sets element i to value(i).
  template <class Value>
  void fill(DataType type, std::byte* memory, std::size_t count, Value value) {
    EmulatedAccelerator::give(stream_->native(), [=] {
      for (std::size_t i = 0; i < count; ++i)
        store_element(type, EmulatedAccelerator::behind(memory) + i * size_of(type), value(i));
    });
  }
  /// Reads after all work that the stream was given.
  std::vector<double> read(DataType type, const std::byte* memory, std::size_t count) {
    std::promise<std::vector<double>> result;
    EmulatedAccelerator::give(stream_->native(), [&] {
      std::vector<double> values;
      for (std::size_t i = 0; i < count; ++i)
        values.push_back(
            load_element(type, EmulatedAccelerator::behind(memory) + i * size_of(type)));
      result.set_value(std::move(values));
    });
    return result.get_future().get();
  }
  /// The stream stops until the promise is kept.
  void hold(std::shared_future<void> until) {
    EmulatedAccelerator::give(stream_->native(), [until] { until.wait(); });
  }

 private:
  Accelerator& accelerator_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

inline Submission on_device(DeviceUser& user, OperationKind kind, const std::string& name,
                            DataType type, std::byte* input, std::byte* output, Shape shape) {
  Submission submission;
  submission.name = name;
  submission.signature.kind = kind;
  submission.signature.type = type;
  submission.signature.shape = std::move(shape);
  submission.input = input;
  submission.output = output;
  submission.stream = user.stream();
  return submission;
}

/// Waits, and orders the user's stream after the work.
inline Status finish(DeviceUser& user, Work& work) {
  Status status = work.wait();
  return status.ok() ? work.order(user.stream()) : status;
}

}  // namespace kolo::test
