#include "bindings/torch/tensor_memory.h"

#include <utility>

namespace kolo {
namespace {

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
  if (tensor.scalar_type() == torch::kFloat32) return DataType::kFloat32;
  if (tensor.scalar_type() == torch::kFloat64) return DataType::kFloat64;
  if (tensor.scalar_type() == torch::kBFloat16) return DataType::kBFloat16;
  if (tensor.scalar_type() == torch::kInt64) return DataType::kInt64;
  raise(ErrorCode::kUnsupported, "tensor " + quoted(name) + " has type " +
                                     torch::toString(tensor.scalar_type()) +
                                     "; kolo takes float32, float64, bfloat16 and int64");
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
