// See ucx_memory.h. A key is the region's address and length as its owner sees them, followed by
// UCX's packed remote key.
#include "transport/ucx/ucx_memory.h"

#include "runtime/base/check.h"
#include "runtime/base/resource_limits.h"
#include "transport/ucx/ucx_context.h"

#include <sys/sysinfo.h>
#include <algorithm>
#include <cstring>
#include <optional>

namespace kolo {
namespace {

struct KeyHead {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

class UcxRegion final : public MemoryRegion {
 public:
  UcxRegion(UcxMemory memory, std::span<std::byte> bytes, MemoryType type, std::string key)
      : memory_(std::move(memory)), bytes_(bytes), type_(type), key_(std::move(key)) {}
  std::span<std::byte> bytes() const override { return bytes_; }
  MemoryType type() const override { return type_; }
  std::string key() const override { return key_; }
  ucp_mem_h handle() const { return memory_.get().memory; }

 private:
  UcxMemory memory_;
  std::span<std::byte> bytes_;
  MemoryType type_;
  std::string key_;
};

class UcxMapping final : public PeerMapping {
 public:
  UcxMapping(UcxRemoteKey key, std::span<std::byte> bytes) : key_(std::move(key)), bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  UcxRemoteKey key_;
  std::span<std::byte> bytes_;
};

ucs_memory_type_t ucx_type(MemoryType type) {
  switch (type) {
    case MemoryType::kHost:
      return UCS_MEMORY_TYPE_HOST;
    case MemoryType::kCuda:
      return UCS_MEMORY_TYPE_CUDA;
  }
  return UCS_MEMORY_TYPE_UNKNOWN;
}

std::size_t memory_of_this_host() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return 0;
  return std::size_t{info.totalram} * info.mem_unit;
}

Result<std::string> pack_key(ucp_context_h context, ucp_mem_h memory, std::span<std::byte> bytes) {
  void* packed = nullptr;
  std::size_t size = 0;
  const ucs_status_t status = ucp_rkey_pack(context, memory, &packed, &size);
  if (status != UCS_OK) return ucx_error(status, "packing the key of a memory region");
  const KeyHead head{.address = reinterpret_cast<std::uintptr_t>(bytes.data()),
                     .length = bytes.size()};
  std::string key(reinterpret_cast<const char*>(&head), sizeof(head));
  key.append(static_cast<const char*>(packed), size);
  ucp_rkey_buffer_release(packed);
  return key;
}

Result<std::unique_ptr<MemoryRegion>> map_memory(ucp_context_h context, std::size_t bytes,
                                                 std::optional<std::span<std::byte>> given,
                                                 MemoryType type) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE |
                      (given ? UCP_MEM_MAP_PARAM_FIELD_ADDRESS : UCP_MEM_MAP_PARAM_FIELD_FLAGS);
  params.address = given ? given->data() : nullptr;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  params.memory_type = ucx_type(type);
  ucp_mem_h mapped = nullptr;
  const FileSizeErrors file_size_errors;
  ucs_status_t status = ucp_mem_map(context, &params, &mapped);
  const char* const verb = given ? "registering" : "allocating";
  if (status != UCS_OK) return ucx_error(status, fmt::format("{} {} bytes", verb, bytes));
  UcxMemory memory({.context = context, .memory = mapped});

  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  status = ucp_mem_query(mapped, &attributes);
  if (status != UCS_OK) return ucx_error(status, fmt::format("{} {} bytes", verb, bytes));
  const std::span range(static_cast<std::byte*>(attributes.address), bytes);
  KOLO_ASSIGN(std::string key, pack_key(context, mapped, range));
  return std::unique_ptr<MemoryRegion>(
      std::make_unique<UcxRegion>(std::move(memory), range, type, std::move(key)));
}

}  // namespace

Result<std::unique_ptr<MemoryRegion>> allocate_ucx_memory(ucp_context_h context,
                                                          ucp_ep_h own_endpoint,
                                                          std::size_t bytes) {
  // UCX tries one kind of shared memory after another. It would fill /dev/shm before it finds that
  // the request is impossible.
  if (bytes > memory_of_this_host()) {
    return KOLO_ERROR(kOutOfMemory, "no {} bytes that peers can map: this host has {} bytes", bytes,
                      memory_of_this_host());
  }
  auto region =
      map_memory(context, std::max(bytes, std::size_t{1}), std::nullopt, MemoryType::kHost);
  if (!region.ok()) {
    return KOLO_ERROR(kOutOfMemory, "no {} bytes that peers can map: {}", bytes,
                      region.error().message);
  }
  if (!map_ucx_memory(own_endpoint, (*region)->key()).ok()) {
    return KOLO_ERROR(kOutOfMemory,
                      "no {} bytes of shared memory: UCX took private memory instead (is /dev/shm "
                      "or kernel.shmall too small, or shared memory excluded by UCX_TLS?)",
                      bytes);
  }
  return region;
}

Result<std::unique_ptr<MemoryRegion>> register_ucx_memory(ucp_context_h context,
                                                          std::span<std::byte> bytes,
                                                          MemoryType type) {
  if (bytes.empty()) return KOLO_ERROR(kInvalidArgument, "nothing to register: zero bytes");
  if (type == MemoryType::kCuda) {
    // A UCX that knows no CUDA memory would take this for host memory.
    ucp_context_attr_t attributes{};
    attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    const ucs_status_t status = ucp_context_query(context, &attributes);
    if (status != UCS_OK) return ucx_error(status, "asking UCX for its types of memory");
    if ((attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) == 0) {
      return KOLO_ERROR(kUnsupported,
                        "UCX {} can register no CUDA memory with the transports {}: it takes a UCX "
                        "that is built with CUDA, and cuda_copy among them (UCX_TLS)",
                        ucx_version(), ucx_transports(context));
    }
  }
  return map_memory(context, bytes.size(), bytes, type);
}

void describe_memory(ucp_request_param_t& params, const MemoryRegion* memory) {
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.memory_type = ucx_type(type_of(memory));
  if (memory == nullptr) return;
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  params.memh = static_cast<const UcxRegion*>(memory)->handle();
}

Result<std::unique_ptr<PeerMapping>> map_ucx_memory(ucp_ep_h endpoint, std::string_view key) {
  KeyHead head;
  if (key.size() <= sizeof(head)) {
    return KOLO_ERROR(kInvalidArgument, "a key of {} bytes is none of a memory region", key.size());
  }
  std::memcpy(&head, key.data(), sizeof(head));
  ucp_rkey_h raw_key = nullptr;
  ucs_status_t status = ucp_ep_rkey_unpack(endpoint, key.data() + sizeof(head), &raw_key);
  if (status != UCS_OK) return ucx_error(status, "unpacking the key of a memory region");
  UcxRemoteKey remote_key(raw_key);
  void* address = nullptr;
  status = ucp_rkey_ptr(raw_key, head.address, &address);
  if (status != UCS_OK) {
    return KOLO_ERROR(kUnsupported, "memory of {} bytes cannot be mapped: {} (UCX)", head.length,
                      ucs_status_string(status));
  }
  return std::unique_ptr<PeerMapping>(std::make_unique<UcxMapping>(
      std::move(remote_key), std::span(static_cast<std::byte*>(address), head.length)));
}

}  // namespace kolo
