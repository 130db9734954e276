// Replicas of a module on several devices of one process: how a batch is dealt out to them, how
// they compute at the same time, how their gradients come back. Used by DataParallel and by a
// DistributedDataParallel with several device_ids; one thread at a time. (After PyTorch's
// torch/nn/parallel: scatter, replicate, parallel_apply, gather.)
#pragma once

#include <kolo/export.h>
#include <kolo/torch/gather_outputs.h>
#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

/// How the tensors of a forward's arguments are dealt out: in equal parts of dimension 0, the last
/// one smaller. Those without dimensions go to every replica.
class KOLO_API BatchShares {
 public:
  /// Throws kMismatch, with both sizes, for tensors of different sizes in dimension 0.
  BatchShares(const std::vector<torch::Tensor>& tensors, std::vector<torch::Device> devices);

  /// Replicas that get something: at least 1.
  std::size_t count() const { return count_; }
  /// The replica's part of one of the tensors, on its device; autograd follows it.
  torch::Tensor part(const torch::Tensor& tensor, std::size_t replica) const;

 private:
  std::vector<torch::Device> devices_;
  std::int64_t rows_ = 0;  ///< of all but the last part
  std::size_t count_ = 1;
};

/// Whether append_tensors() may find tensors in a T.
template <class T>
constexpr bool has_tensors() {
  if constexpr (std::is_convertible_v<const T&, const torch::Tensor&>) {
    return true;
  } else if constexpr (TupleLike<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_tensors<std::remove_cvref_t<std::tuple_element_t<I, T>>>() || ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (is_optional<T>()) {
    return has_tensors<typename T::value_type>();
  } else if constexpr (std::ranges::range<const T>) {
    using Part = std::remove_cvref_t<std::ranges::range_reference_t<const T>>;
    if constexpr (std::is_same_v<Part, T>) {  // a path's parts are paths
      return false;
    } else {
      return has_tensors<Part>();
    }
  } else {
    return false;
  }
}

/// Whether share_of() deals out all tensors of a T.
template <class T>
constexpr bool is_shareable() {
  return is_gatherable<T>() || !has_tensors<T>();
}

/// `value` with the replica's parts of its tensors; see gather_outputs() for where these may be.
/// What has none goes to every replica as it is.
template <class T>
  requires(is_shareable<T>())
decltype(auto) share_of(const T& value, const BatchShares& shares, std::size_t replica) {
  if constexpr (std::is_convertible_v<const T&, const torch::Tensor&>) {
    return shares.part(value, replica);
  } else if constexpr (TupleLike<T> && is_gatherable<T>()) {
    return std::apply([&](const auto&... parts) { return T{share_of(parts, shares, replica)...}; },
                      value);
  } else if constexpr (is_vector<T>() && is_gatherable<T>()) {
    T parts;
    for (const auto& part : value) parts.push_back(share_of(part, shares, replica));
    return parts;
  } else if constexpr (is_optional<T>() && is_gatherable<T>()) {
    return value ? T(share_of(*value, shares, replica)) : T();
  } else {
    return static_cast<const T&>(value);
  }
}

/// Whether forward takes the parts of such arguments and returns what can be gathered.
template <class Module, class... Arguments>
concept Replicable = requires(Module module, const BatchShares& shares,
                              const std::remove_reference_t<Arguments>&... arguments) {
  requires is_gatherable<
      std::decay_t<decltype(module.forward(share_of(arguments, shares, 0)...))>>();
};

class KOLO_API Replicas {
 public:
  /// `who` names the caller in messages. Throws kInvalidArgument if a parameter or buffer is not on
  /// the first of `devices`, naming it and both; with several devices kUnsupported for a module
  /// that cannot be cloned or has a SyncBatchNorm.
  Replicas(std::string who, const torch::nn::Module& module, std::vector<torch::Device> devices,
           torch::Device output_device);
  ~Replicas();
  Replicas(Replicas&&) noexcept;
  Replicas& operator=(Replicas&&) noexcept;

  /// What the module's forward returns of all of `arguments`, with its tensors on the output
  /// device; each replica computes a part on a thread of its own, the module itself the first on
  /// this one. Throws what the first replica that fails throws, after all have ended.
  template <class Module, class... Arguments>
  auto forward(const std::shared_ptr<Module>& module, const Arguments&... arguments) {
    static_assert(
        (is_shareable<Arguments>() && ...),
        "replicas share tensors, and tuples, arrays, optionals and std::vectors of nothing "
        "but tensors; of an argument that holds tensors otherwise (a map, a TensorList, a "
        "tuple with numbers) each replica would compute the whole");
    using Output = std::decay_t<decltype(module->forward(arguments...))>;
    std::vector<torch::Tensor> tensors;
    static_cast<void>((append_tensors(arguments, tensors) & ... & true));
    const BatchShares shares = deal(*module, tensors);
    std::vector<std::shared_ptr<Module>> modules{module};
    for (auto& replica : replicate(*module, shares.count())) {
      modules.push_back(std::dynamic_pointer_cast<Module>(std::move(replica)));
    }
    std::vector<std::optional<Output>> outputs(modules.size());
    run(modules.size(), [&](std::size_t i) {
      outputs[i].emplace(modules[i]->forward(share_of(arguments, shares, i)...));
    });
    std::vector<Output> results;
    for (auto& output : outputs) results.push_back(std::move(*output));
    return gather_outputs(results, output_device());
  }

  torch::Device output_device() const;

 private:
  BatchShares deal(const torch::nn::Module& module,
                   const std::vector<torch::Tensor>& tensors) const;
  /// Copies of the module for devices 1 … count - 1, whose gradients become the module's.
  std::vector<std::shared_ptr<torch::nn::Module>> replicate(const torch::nn::Module& module,
                                                            std::size_t count) const;
  void run(std::size_t count, const std::function<void(std::size_t)>& compute);

  struct State;
  std::unique_ptr<State> state_;
};

/// `devices` with what they leave open: the CPU has no index, "cuda" is the current CUDA device.
KOLO_API std::vector<torch::Device> complete_devices(std::vector<torch::Device> devices);

/// What a module holder or a shared pointer points at.
template <class Module>
std::shared_ptr<Module> pointer_of(const std::shared_ptr<Module>& module) {
  return module;
}
template <class Module>
std::shared_ptr<Module> pointer_of(const torch::nn::ModuleHolder<Module>& module) {
  return module.ptr();
}

}  // namespace kolo
