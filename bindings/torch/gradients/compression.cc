#include <kolo/torch/compression.h>

#include <map>

namespace kolo {
namespace {

bool is_wide(torch::ScalarType type) { return type == torch::kFloat32 || type == torch::kFloat64; }

class Narrow : public Compressor {
 public:
  explicit Narrow(torch::ScalarType type) : type_(type) {}

  torch::ScalarType wire_type(torch::ScalarType type) const override {
    return is_wide(type) ? type_ : type;
  }
  torch::Tensor compress(const std::string&, const torch::Tensor& gradient) override {
    return gradient.to(wire_type(gradient.scalar_type()));
  }

 private:
  torch::ScalarType type_;
};

class ErrorFeedback final : public Narrow {
 public:
  using Narrow::Narrow;

  torch::Tensor compress(const std::string& name, const torch::Tensor& gradient) override {
    if (!is_wide(gradient.scalar_type())) return gradient;
    torch::Tensor& error = errors_[name];
    const bool fits = error.defined() && error.sizes() == gradient.sizes() &&
                      error.scalar_type() == gradient.scalar_type();
    const torch::Tensor wanted = fits ? gradient + error : gradient;
    torch::Tensor wire = Narrow::compress(name, wanted);
    error = wanted - wire.to(wanted.scalar_type());
    // An overflow must not stay in the error, or it would return in every step.
    error.nan_to_num_(0, 0, 0);
    return wire;
  }

 private:
  std::map<std::string, torch::Tensor> errors_;
};

}  // namespace

void Compressor::decompress(const std::string&, const torch::Tensor& wire, torch::Tensor gradient) {
  gradient.copy_(wire);
}

namespace compression {

std::shared_ptr<Compressor> fp16() { return std::make_shared<Narrow>(torch::kFloat16); }
std::shared_ptr<Compressor> bf16() { return std::make_shared<Narrow>(torch::kBFloat16); }
std::shared_ptr<Compressor> fp16_with_error_feedback() {
  return std::make_shared<ErrorFeedback>(torch::kFloat16);
}

}  // namespace compression
}  // namespace kolo
