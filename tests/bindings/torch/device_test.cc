// Devices and streams without hardware: a device of CUDA's kind stands in for LibTorch's own and
// only records its calls. tests/gpu/tensor_check shows what a GPU does with them.
#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using kolo::test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Streams are numbers, their handles are addresses in an array; the order of calls is recorded as
/// text.
class NotingDevice final : public c10::impl::DeviceGuardImplInterface {
 public:
  mutable std::vector<std::string> notes;
  mutable std::map<c10::DeviceIndex, c10::StreamId> current;

  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {type(), std::exchange(device_, device.index())};
  }
  c10::Device getDevice() const override { return {type(), device_}; }
  void setDevice(c10::Device device) const override { device_ = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { device_ = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current[device.index()]);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(),
                       std::exchange(current[stream.device_index()], stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &handles_[static_cast<std::size_t>(stream.id())];
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    recorded_ = stream.id();
    *event = &recorded_;
    notes.push_back("record " + std::to_string(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    notes.push_back(std::to_string(stream.id()) + " after " +
                    std::to_string(*static_cast<c10::StreamId*>(event)));
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  void* handle(std::size_t id) const { return &handles_[id]; }

 private:
  mutable c10::DeviceIndex device_ = 0;
  mutable c10::StreamId recorded_ = 0;
  mutable std::array<char, 8> handles_ = {};
};

class Devices : public testing::Test {
 protected:
  void SetUp() override { before_ = slot().exchange(&noting_); }
  void TearDown() override { slot().store(before_); }

  static std::atomic<const c10::impl::DeviceGuardImplInterface*>& slot() {
    return c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::DeviceType::CUDA)];
  }
  /// A tensor of four numbers that claims to be on cuda:`index`.
  torch::Tensor far_tensor(c10::DeviceIndex index) {
    const torch::Device device(torch::kCUDA, index);
    return at::for_blob(numbers_.data(), {4})
        .options(torch::TensorOptions().device(device))
        .target_device(device)
        .make_tensor();
  }

  const torch::Device first_{torch::kCUDA, 0};
  NotingDevice noting_;
  std::array<float, 4> numbers_ = {};

 private:
  const c10::impl::DeviceGuardImplInterface* before_ = nullptr;
};

TEST_F(Devices, ATensorOnSharedMemoryIsWhereTheMemoryIsAndHoldsIt) {
  auto memory = std::make_shared<std::array<float, 6>>();
  const std::weak_ptr<std::array<float, 6>> watched = memory;
  const void* const data = memory->data();
  const auto options = torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA, 1);
  torch::Tensor tensor = kolo::on_memory(std::move(memory), {2, 3}, options);
  EXPECT_EQ(tensor.device(), torch::Device(torch::kCUDA, 1));
  EXPECT_EQ(tensor.const_data_ptr(), data);
  EXPECT_EQ(tensor.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(tensor.is_contiguous() && !tensor.requires_grad());
  torch::Tensor alias = tensor.alias();
  tensor.reset();
  EXPECT_FALSE(watched.expired());
  alias.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(Devices, TheCurrentStreamIsThatOfTheTensorsDevice) {
  EXPECT_FALSE(kolo::current_stream(torch::kCPU));
  noting_.current = {{0, 3}, {1, 5}};
  EXPECT_EQ(kolo::current_stream(first_).value().handle, noting_.handle(3));
  EXPECT_EQ(kolo::current_stream({torch::kCUDA, 1}).value().handle, noting_.handle(5));
}

TEST_F(Devices, TheCurrentStreamComesAfterAllOnWhichTensorsBecameReady) {
  kolo::ReadyStreams ready;
  for (const c10::StreamId id : {1, 2, 1, 4}) {
    noting_.current[0] = id;
    ready.add(first_);
  }
  ready.add(torch::kCPU);
  ready.join();
  EXPECT_THAT(noting_.notes, ElementsAre("record 1", "4 after 1", "record 2", "4 after 2"));
  noting_.notes.clear();
  ready.join();
  EXPECT_THAT(noting_.notes, IsEmpty()) << "what was joined is forgotten";
}

TEST_F(Devices, TensorsOfOneStreamNeedNoOrder) {
  kolo::ReadyStreams ready;
  noting_.current[0] = 2;
  ready.add(first_);
  ready.add(first_);
  ready.join();
  EXPECT_THAT(noting_.notes, IsEmpty());
}

TEST_F(Devices, ATensorElsewhereIsRefusedWithBothDevices) {
  EXPECT_EQ(kolo::device_misfit(torch::kCPU, -1), "");
  EXPECT_EQ(kolo::device_misfit({torch::kCUDA, 1}, 1), "");
  if (kolo::cuda_built()) {
    EXPECT_THAT(kolo::device_misfit({torch::kCUDA, 0}, 1),
                AllOf(HasSubstr("rank 0's device is cuda:1"), HasSubstr("KOLO_DEVICE")));
    EXPECT_THAT(kolo::device_misfit({torch::kCUDA, 0}, -1), HasSubstr("rank 0 has no CUDA device"));
  } else {
    EXPECT_THAT(kolo::device_misfit({torch::kCUDA, 0}, -1), HasSubstr("no CUDA"));
  }
  EXPECT_THAT(kolo::device_misfit(torch::kMeta, 0), HasSubstr("cpu and cuda"));
  if (kolo::device_ordinal() >= 0) return;  // a GPU is here, and takes it
  EXPECT_THAT(message_of([] { kolo::shared_zeros({2}, torch::kCUDA); }),
              AllOf(HasSubstr("kolo::shared_zeros on cuda: "), HasSubstr("no CUDA")));
  EXPECT_THAT(
      message_of([&] { kolo::allreduce_(far_tensor(0), {.name = "far"}); }),
      AllOf(HasSubstr("tensor 'far': rank 0: the tensor is on cuda:0"), HasSubstr("no CUDA")));
}

TEST_F(Devices, AllTensorsOfACallAreOnOneDevice) {
  EXPECT_THAT(message_of([&] { kolo::check_one_device(far_tensor(1), torch::ones({4}), "x"); }),
              AllOf(HasSubstr("tensor 'x'"), HasSubstr("on cuda:1"), HasSubstr("on cpu")));
  kolo::check_one_device(far_tensor(1), far_tensor(1), "x");
  kolo::check_one_device(torch::ones({4}), torch::ones({2}), "x");
  EXPECT_THAT(message_of([&] { kolo::check_alike(far_tensor(0), torch::ones({4}), "x"); }),
              HasSubstr("one device"));
}

TEST(Device, AProgramsChoiceIsMetOrRefusedWithTheReason) {
  EXPECT_EQ(kolo::device("cpu"), torch::Device(torch::kCPU));
  EXPECT_EQ(kolo::device("auto"), kolo::device());
  EXPECT_THAT(message_of([] { kolo::device("gpu"); }),
              AllOf(HasSubstr("'gpu'"), HasSubstr("auto, cpu or cuda")));
  if (kolo::device().is_cuda()) {
    EXPECT_EQ(kolo::device("cuda"), kolo::device());
  } else {
    EXPECT_THAT(message_of([] { kolo::device("cuda"); }),
                HasSubstr("device cuda is asked for, but"));
  }
}

}  // namespace
