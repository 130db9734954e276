// PeerKey: what one process tells another about memory that it exports. The key is its bytes.
#pragma once

#include "runtime/device/accelerator.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace kolo::cuda {

struct PeerKey {
  std::array<char, 8> magic = kMagic;
  DeviceUuid uuid = {};
  /// Random, since process ids are not unique across PID namespaces.
  std::array<std::uint32_t, 4> process = {};
  std::int64_t pid = 0;       ///< for messages only
  std::uint64_t address = 0;  ///< in the exporting process
  std::uint64_t offset = 0;   ///< from the start of the memory that the handle maps
  std::uint64_t size = 0;     ///< bytes
  cudaIpcMemHandle_t handle = {};

  static constexpr std::array<char, 8> kMagic = {'k', 'o', 'l', 'o', 'I', 'P', 'C', '1'};

  std::string text() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
  /// Whether `text` is a key.
  bool parse(std::string_view text) {
    if (text.size() != sizeof(*this)) return false;
    std::memcpy(this, text.data(), sizeof(*this));
    return magic == kMagic;
  }
};
static_assert(std::is_trivially_copyable_v<PeerKey>);

}  // namespace kolo::cuda
