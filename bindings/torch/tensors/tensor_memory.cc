#include "bindings/torch/tensors/tensor_memory.h"

#include "bindings/torch/tensors/tensor_refusal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace kolo {
namespace {

constexpr std::pair<torch::ScalarType, DataType> kTypes[] = {
    {torch::kFloat32, DataType::kFloat32},
    {torch::kFloat64, DataType::kFloat64},
    {torch::kBFloat16, DataType::kBFloat16},
    {torch::kInt64, DataType::kInt64},
    {torch::kFloat16, DataType::kFloat16},
    {torch::kInt32, DataType::kInt32},
    {torch::kInt16, DataType::kInt16},
    {torch::kInt8, DataType::kInt8},
    {torch::kUInt8, DataType::kUInt8},
    {torch::kBool, DataType::kBool},
    {torch::kComplexFloat, DataType::kComplex64},
    {torch::kComplexDouble, DataType::kComplex128},
};

std::string subject_of(const std::string& name) {
  return name.empty() ? "the tensor" : "tensor '" + name + "'";
}

}  // namespace

torch::Tensor on_memory(std::shared_ptr<void> memory, torch::IntArrayRef sizes,
                        const torch::TensorOptions& options) {
  void* const data = memory.get();
  // The device is known, so LibTorch need not ask the driver.
  return at::for_blob(data, sizes)
      .deleter([memory = std::move(memory)](void*) {})
      .options(options.requires_grad(std::nullopt))
      .target_device(options.device())
      .make_tensor()
      .requires_grad_(options.requires_grad());
}

void raise(ErrorCode code, std::string message) {
  Error error;
  error.code = code;
  error.message = std::move(message);
  throw Exception(std::move(error));
}

std::optional<DataType> type_of(torch::ScalarType type) {
  for (const auto& [theirs, ours] : kTypes) {
    if (type == theirs) return ours;
  }
  return std::nullopt;
}

namespace {

/// Throws for what data_type_of() refuses whatever the type.
void check_place(const torch::Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) {
    raise(ErrorCode::kInvalidArgument, subject_of(name) + " is undefined");
  }
  if (tensor.layout() != torch::kStrided) {
    raise(ErrorCode::kUnsupported,
          subject_of(name) + " is sparse; make it dense (to_dense()) first");
  }
  if (const torch::Device device = tensor.device(); !device.is_cpu()) {
    const int ordinal = device.is_cuda() ? device_ordinal() : -1;
    if (const std::string misfit = device_misfit(device, ordinal); !misfit.empty()) {
      raise(ordinal < 0 ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
            fmt::format("{} is on {}, but {}", subject_of(name), device.str(), misfit));
    }
  }
}

/// The integer type as wide as one that kolo does not reduce.
std::optional<DataType> carrier_of(torch::ScalarType type) {
  if (torch::isQIntType(type)) return std::nullopt;  // its numbers need a scale
  switch (torch::elementSize(type)) {
    case sizeof(std::uint8_t):
      return DataType::kUInt8;
    case sizeof(std::int16_t):
      return DataType::kInt16;
    case sizeof(std::int32_t):
      return DataType::kInt32;
    case sizeof(std::int64_t):
      return DataType::kInt64;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void refuse_type(torch::ScalarType type, const std::string& name) {
  raise(ErrorCode::kUnsupported,
        fmt::format("{} has type {}; kolo reduces float64/32/16, bfloat16, int64/32/16/8, uint8, "
                    "bool and complex64/128, and moves all but quantized types",
                    subject_of(name), torch::toString(type)));
}

}  // namespace

DataType data_type_of(const torch::Tensor& tensor, const std::string& name) {
  check_place(tensor, name);
  if (const std::optional<DataType> type = type_of(tensor.scalar_type())) return *type;
  refuse_type(tensor.scalar_type(), name);
}

DataType moved_type_of(const torch::Tensor& tensor, const std::string& name) {
  check_place(tensor, name);
  if (const std::optional<DataType> type = type_of(tensor.scalar_type())) return *type;
  if (const std::optional<DataType> type = carrier_of(tensor.scalar_type())) return *type;
  refuse_type(tensor.scalar_type(), name);
}

std::string device_misfit(torch::Device device, int ordinal) {
  if (device.is_cpu() || (device.is_cuda() && device.index() == ordinal)) return {};
  if (!device.is_cuda()) return "kolo takes tensors on cpu and cuda; move it to kolo::device()";
  if (!cuda_built()) return "this build of kolo has no CUDA; move it to the CPU";
  if (ordinal < 0) {
    return fmt::format("rank {} has no CUDA device (kolo-info says why); move it to the CPU",
                       rank());
  }
  return fmt::format(
      "rank {}'s device is cuda:{}; move it to kolo::device(), or choose the device "
      "by KOLO_DEVICE or InitOptions::device",
      rank(), ordinal);
}

void check_one_device(const torch::Tensor& a, const torch::Tensor& b, const std::string& name) {
  if (a.device() == b.device() || (a.is_cpu() && b.is_cpu())) return;
  raise(ErrorCode::kInvalidArgument,
        fmt::format("{}: one tensor of the call is on {} and another on {}; all of a call are on "
                    "one device",
                    subject_of(name), a.device().str(), b.device().str()));
}

void check_alike(const torch::Tensor& input, const torch::Tensor& output, const std::string& name) {
  if (!input.defined() || input.sizes() != output.sizes() ||
      input.scalar_type() != output.scalar_type()) {
    const auto told = [](const torch::Tensor& tensor) {
      return tensor.defined() ? fmt::format("{} [{}]", torch::toString(tensor.scalar_type()),
                                            fmt::join(tensor.sizes(), ", "))
                              : std::string("undefined");
    };
    raise(ErrorCode::kInvalidArgument,
          fmt::format("{}: the input is {}, but the output {}; give an output of the input's shape "
                      "and type",
                      subject_of(name), told(input), told(output)));
  }
  check_one_device(input, output, name);
}

void warn_of_lost_gradient(const torch::Tensor& tensor, const char* call) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  if (!tensor.defined() || !tensor.requires_grad() || !torch::GradMode::is_enabled()) return;
  {
    const std::lock_guard lock(mutex);
    if (!warned.insert(call).second) return;
  }
  TORCH_WARN("kolo::", call,
             "() was given a tensor that requires a gradient, which does not pass through it; "
             "where it is to, as through a loss, call kolo::autograd::",
             call, "(), else give it the tensor's detach()");
}

bool is_plain(const torch::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

torch::Tensor plain(const torch::Tensor& tensor) {
  if (is_plain(tensor)) return tensor;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

Shape shape_of(const torch::Tensor& tensor) { return tensor.sizes().vec(); }

}  // namespace kolo
