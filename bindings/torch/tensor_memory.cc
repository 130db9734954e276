#include "bindings/torch/tensor_memory.h"

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

std::string quoted(const std::string& name) {
  return name.empty() ? "(unnamed)" : "'" + name + "'";
}

}  // namespace

void raise(ErrorCode code, std::string message) {
  Error error;
  error.code = code;
  error.message = std::move(message);
  throw Exception(std::move(error));
}

DataType data_type_of(const torch::Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) {
    raise(ErrorCode::kInvalidArgument, "tensor " + quoted(name) + " is undefined");
  }
  if (tensor.layout() != torch::kStrided) {
    raise(ErrorCode::kUnsupported,
          "tensor " + quoted(name) + " is sparse; make it dense (to_dense()) first");
  }
  if (!tensor.device().is_cpu()) {
    raise(ErrorCode::kUnsupported, "tensor " + quoted(name) + " is on " + tensor.device().str() +
                                       "; this build of kolo takes CPU tensors");
  }
  for (const auto& [theirs, ours] : kTypes) {
    if (tensor.scalar_type() == theirs) return ours;
  }
  raise(ErrorCode::kUnsupported,
        "tensor " + quoted(name) + " has type " + torch::toString(tensor.scalar_type()) +
            "; kolo takes float64/32/16, bfloat16, int64/32/16/8, uint8, bool and complex64/128");
}

void check_alike(const torch::Tensor& input, const torch::Tensor& output, const std::string& name) {
  if (!input.defined() || input.sizes() != output.sizes() ||
      input.scalar_type() != output.scalar_type()) {
    raise(ErrorCode::kInvalidArgument,
          "tensor " + quoted(name) + ": input and output differ in shape or type");
  }
}

Shape shape_of(const torch::Tensor& tensor) { return tensor.sizes().vec(); }

}  // namespace kolo
