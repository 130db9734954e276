#include "tests/bindings/torch/stress/network.h"

#include <kolo/torch/sync_batch_norm.h>

namespace kolo::test {
namespace {

using torch::Tensor;
using Apply = std::function<Tensor(const Tensor&)>;

/// Saves only the input, and recomputes the rest within backward.
struct Recompute : torch::autograd::Function<Recompute> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input,
                        const Apply* apply) {
    context->save_for_backward({input});
    context->saved_data["apply"] = reinterpret_cast<std::int64_t>(apply);
    return (*apply)(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* const apply = reinterpret_cast<const Apply*>(context->saved_data["apply"].toInt());
    const Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode grad_mode(true);
    (*apply)(input).backward(gradients[0]);
    return {input.grad(), Tensor()};
  }
};

}  // namespace

NetworkImpl::NetworkImpl(const ModelPlan& plan, std::optional<ProcessSet> set) {
  linears_.resize(plan.layers.size(), nullptr);
  layers_.reserve(plan.layers.size());
  for (std::size_t i = 0; i < plan.layers.size(); ++i) add_layer(plan.layers[i], i, set);
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (!plan.layers[i].frozen) continue;
    for (Tensor parameter : layers_[i].parameters) parameter.set_requires_grad(false);
  }
}

Tensor NetworkImpl::add_parameter(Layer& layer, const std::string& name, Tensor value) {
  layer.parameters.push_back(register_parameter(name, std::move(value)));
  return layer.parameters.back();
}

template <class M>
M NetworkImpl::add_module(Layer& layer, const std::string& name, M module, torch::ScalarType type) {
  module->to(type);
  for (const Tensor& parameter : module->parameters()) layer.parameters.push_back(parameter);
  return register_module(name, module);
}

void NetworkImpl::add_layer(const LayerPlan& plan, std::size_t index,
                            std::optional<ProcessSet> set) {
  layers_.emplace_back();
  Layer& layer = layers_.back();
  const std::string name = "layer" + std::to_string(index);
  const auto type = plan.type;
  const auto linear = [&](int in, int out) {
    const std::string part = name + (layer.parameters.empty() ? "" : "b");
    return add_module(layer, part, torch::nn::Linear(in, out), type);
  };
  switch (plan.kind) {
    case LayerKind::kLinear: {
      auto made = linear(kFeatures, kFeatures);
      linears_[index] = made;
      layer.apply = [made, type](const Tensor& x) mutable { return made->forward(x.to(type)); };
      break;
    }
    case LayerKind::kWide: {
      auto wide = linear(kFeatures, plan.units);
      auto back = linear(plan.units, kFeatures);
      layer.apply = [wide, back, type](const Tensor& x) mutable {
        return back->forward(wide->forward(x.to(type)).sigmoid());
      };
      break;
    }
    case LayerKind::kRecomputed: {
      auto made = linear(kFeatures, kFeatures);
      const auto plain = std::make_shared<Apply>(
          [made, type](const Tensor& x) mutable { return made->forward(x.to(type)); });
      layer.apply = [plain](const Tensor& x) { return Recompute::apply(x, plain.get()); };
      break;
    }
    case LayerKind::kAgain: {
      auto made = linears_.at(static_cast<std::size_t>(plan.of));
      layer.apply = [made, type](const Tensor& x) mutable { return made->forward(x.to(type)); };
      break;
    }
    case LayerKind::kTied: {
      const Tensor weight = linears_.at(static_cast<std::size_t>(plan.of))->weight;
      register_parameter(name + "_weight", weight);
      const Tensor bias = add_parameter(layer, name + "_bias", torch::randn({kFeatures}, type));
      layer.apply = [weight, bias, type](const Tensor& x) {
        return torch::linear(x.to(type), weight, bias);
      };
      break;
    }
    case LayerKind::kConv: {
      auto conv = add_module(layer, name,
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).padding(1)), type);
      {
        const torch::NoGradGuard no_grad;
        conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
      }
      layer.apply = [conv, type](const Tensor& x) mutable {
        const Tensor image = x.to(type).reshape({x.size(0), 2, kFeatures / 2, 1});
        return conv->forward(image).flatten(1).slice(1, 0, kFeatures);
      };
      break;
    }
    case LayerKind::kEmbedding: {
      auto table = add_module(layer, name, torch::nn::Embedding(11, kFeatures), type);
      layer.apply = [table](const Tensor& x) mutable {
        // Inputs that are a hair apart must not select different rows.
        return table->forward((x.detach().select(1, 0) > 0).to(torch::kInt64));
      };
      break;
    }
    case LayerKind::kLayerNorm: {
      auto norm = add_module(
          layer, name, torch::nn::LayerNorm(torch::nn::LayerNormOptions({kFeatures}).eps(1e-2)),
          type);
      layer.apply = [norm, type](const Tensor& x) mutable { return norm->forward(x.to(type)); };
      break;
    }
    case LayerKind::kBatchNorm: {
      const auto options = torch::nn::BatchNormOptions(kFeatures).eps(1e-2);
      layer.sees_all = true;
      if (set) {
        auto norm = add_module(layer, name, SyncBatchNorm(options, *set), type);
        layer.apply = [norm, type](const Tensor& x) mutable { return norm->forward(x.to(type)); };
      } else {
        auto norm = add_module(layer, name, torch::nn::BatchNorm1d(options), type);
        layer.apply = [norm, type](const Tensor& x) mutable { return norm->forward(x.to(type)); };
      }
      break;
    }
    case LayerKind::kTransposed: {
      const Tensor weight =
          add_parameter(layer, name, torch::randn({kFeatures, kFeatures}).to(type).mul(0.3).t());
      layer.apply = [weight, type](const Tensor& x) { return x.to(type).matmul(weight); };
      break;
    }
    case LayerKind::kComplex: {
      const auto complex = type == torch::kFloat32 ? torch::kComplexFloat : torch::kComplexDouble;
      const Tensor weight =
          add_parameter(layer, name, torch::randn({kFeatures, kFeatures}, complex).mul(0.3));
      layer.apply = [weight, complex](const Tensor& x) {
        const Tensor made = x.to(complex).matmul(weight);
        return torch::real(made) + torch::imag(made);
      };
      break;
    }
    case LayerKind::kScalar: {
      const Tensor factor = add_parameter(layer, name, torch::randn({}, type));
      layer.apply = [factor](const Tensor& x) { return x * factor; };
      break;
    }
    case LayerKind::kEmpty: {
      const Tensor nothing = add_parameter(layer, name, torch::zeros({0, 3}, type));
      layer.apply = [nothing](const Tensor& x) { return x + nothing.sum(); };
      break;
    }
  }
}

std::vector<Tensor> NetworkImpl::forward(const std::vector<Part>& parts) {
  std::vector<Tensor> values;
  std::vector<std::int64_t> rows;
  for (const Part& part : parts) {
    values.push_back(part.input);
    rows.push_back(part.input.size(0));
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (before_layer) before_layer(i);
    if (layer.sees_all) {
      values = layer.apply(torch::cat(values)).to(torch::kFloat64).split_with_sizes(rows);
      continue;
    }
    for (std::size_t p = 0; p < parts.size(); ++p)
      if ((parts[p].uses >> i & 1) != 0)
        values[p] = values[p] + 0.5 * layer.apply(values[p]).to(torch::kFloat64).tanh();
  }
  return values;
}

}  // namespace kolo::test
