#include "transport/ucx/ucx_gpudirect.h"

#include "runtime/base/check.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace kolo {
namespace {

/// All transports of RDMA cards, and cuda_copy, which tells UCX about device memory. Without it,
/// UCX recognises no device memory and has no dma-buf of it.
constexpr const char* kCards = "ib,cuda_copy";
/// cuda_copy without cards; on its own it does not make a context.
constexpr const char* kNoCards = "self,cuda_copy";

std::vector<std::string> cards_of(const std::string& system) {
  std::vector<std::string> cards;
  std::error_code none;
  for (const auto& card : std::filesystem::directory_iterator(system + "/class/infiniband", none))
    cards.push_back(card.path().filename().string());
  std::sort(cards.begin(), cards.end());
  return cards;
}

/// Bytes of the key of `memory`, registered through `transports`. Each transport that takes the
/// memory adds some.
Result<std::size_t> key_bytes(std::span<std::byte> memory, const char* transports) {
  ucp_config_t* raw_config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw_config);
  if (status != UCS_OK) return ucx_error(status, "reading UCX's settings");
  const UcxConfig config(raw_config);
  // A UCX without CUDA would warn about the transport's name.
  static_cast<void>(ucp_config_modify(config.get(), "WARN_INVALID_CONFIG", "n"));
  status = ucp_config_modify(config.get(), "TLS", transports);
  if (status != UCS_OK) return ucx_error(status, "restricting UCX to the network cards");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_RMA;
  ucp_context_h raw_context = nullptr;
  status = ucp_init(&params, config.get(), &raw_context);
  if (status != UCS_OK) return ucx_error(status, "opening UCX on the network cards");
  const UcxContext context(raw_context);
  KOLO_ASSIGN(const auto region, register_ucx_memory(context.get(), memory, MemoryType::kCuda));
  return region->key().size();
}

/// CUDA's transport always takes its memory. The key shows whether a card has taken it, too.
Status register_with_cards(std::span<std::byte> memory) {
  KOLO_ASSIGN(const std::size_t with_cards, key_bytes(memory, kCards));
  KOLO_ASSIGN(const std::size_t without, key_bytes(memory, kNoCards));
  if (with_cards > without) return {};
  return KOLO_ERROR(kUnsupported, "no card took it");
}

}  // namespace

GpuDirect probe_gpudirect(std::span<std::byte> memory, const std::string& system) {
  const std::vector<std::string> cards = cards_of(system);
  if (cards.empty())
    return {false, fmt::format("no RDMA network card on this host ({}/class/infiniband)", system)};
  std::error_code unknown;
  const bool has_module = std::filesystem::exists(system + "/module/nvidia_peermem", unknown);
  const std::string means = has_module ? "nvidia_peermem is loaded"
                                       : "nvidia_peermem is not loaded; without it, dma-buf takes "
                                         "Linux 5.12, UCX 1.14 and NVIDIA's open kernel modules";
  const std::string asked = fmt::format("UCX {}, asked to register {} bytes of the GPU with {}",
                                        ucx_version(), memory.size(), fmt::join(cards, ", "));
  const Status registered = register_with_cards(memory);
  if (registered.ok()) return {true, fmt::format("{}, did ({})", asked, means)};
  return {false, fmt::format("{}, did not: {} ({})", asked, registered.error().message, means)};
}

}  // namespace kolo
