// Replicas of a module on several devices of one process. It splits a batch over them, runs them at
// the same time and combines their gradients. Used by DataParallel and by a DistributedDataParallel
// with several device_ids, by one thread at a time. (After PyTorch's torch/nn/parallel: scatter,
// replicate, parallel_apply, gather.)
#pragma once

#include <kolo/export.h>
#include <kolo/torch/gather_outputs.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

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

/// Splits the tensors of forward's arguments over replicas: in equal parts of dimension 0, the last
/// one smaller. Tensors without dimensions go to every replica.
///
///   const kolo::BatchShares shares({images, targets}, devices);
///   for (std::size_t i = 0; i < shares.count(); ++i) use(shares.part(images, i));
class KOLO_API BatchShares {
 public:
  /// Throws kMismatch, with both sizes, if tensors differ in the size of dimension 0.
  BatchShares(const std::vector<torch::Tensor>& tensors, std::vector<torch::Device> devices);

  /// Number of replicas that get a part: at least 1.
  std::size_t count() const { return count_; }
  /// The replica's part of `tensor`, on the replica's device. Autograd follows it.
  torch::Tensor part(const torch::Tensor& tensor, std::size_t replica) const;

 private:
  std::vector<torch::Device> devices_;
  std::int64_t rows_ = 0;  ///< rows of each part but the last
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

/// Whether share_of() splits all tensors of a T.
template <class T>
constexpr bool is_shareable() {
  return is_gatherable<T>() || !has_tensors<T>();
}

/// Returns `value` with each tensor replaced by the replica's part. gather_outputs() lists the
/// types that may hold tensors. A value without tensors goes to every replica unchanged.
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

/// Whether forward accepts parts of these arguments and returns a result that can be gathered.
template <class Module, class... Arguments>
concept Replicable = requires(Module module, const BatchShares& shares,
                              const std::remove_reference_t<Arguments>&... arguments) {
  requires is_gatherable<
      std::decay_t<decltype(module.forward(share_of(arguments, shares, 0)...))>>();
};

/// The replicas of one module:
///
///   kolo::Replicas replicas("my trainer", *network, devices, devices.front());
///   torch::Tensor output = replicas.forward(kolo::pointer_of(network), images);
class KOLO_API Replicas {
 public:
  /// `who` names the caller in messages. Throws kInvalidArgument if a parameter or buffer is not on
  /// the first of `devices`, naming it and both devices. With several devices it throws
  /// kUnsupported for a module that cannot be cloned or has a SyncBatchNorm.
  Replicas(std::string who, const torch::nn::Module& module, std::vector<torch::Device> devices,
           torch::Device output_device);
  ~Replicas();
  Replicas(Replicas&&) noexcept;
  Replicas& operator=(Replicas&&) noexcept;

  /// Returns the result of the module's forward for all of `arguments`, with its tensors on the
  /// output device. The module itself computes the first part on this thread; each other replica
  /// computes its part on its own thread. Throws the exception of the first replica that fails,
  /// after all have ended.
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
  /// Copies of the module for devices 1 … count - 1. Their gradients become the module's.
  std::vector<std::shared_ptr<torch::nn::Module>> replicate(const torch::nn::Module& module,
                                                            std::size_t count) const;
  void run(std::size_t count, const std::function<void(std::size_t)>& compute);

  struct State;
  std::unique_ptr<State> state_;
};

/// Fills in device indices: the CPU has none, "cuda" becomes the current CUDA device.
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
