// Packs strings into one string, each after its length (32 bits): the format of the bootstrap's
// blobs. Pure functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

inline std::string join_fields(const std::vector<std::string>& fields) {
  std::string blob;
  for (const std::string& field : fields) {
    const auto length = static_cast<std::uint32_t>(field.size());
    blob.append(reinterpret_cast<const char*>(&length), sizeof length);
    blob.append(field);
  }
  return blob;
}

/// False if the lengths do not fit the blob's size.
inline bool split_fields(std::string_view blob, std::vector<std::string>& fields) {
  fields.clear();
  while (!blob.empty()) {
    std::uint32_t length = 0;
    if (blob.size() < sizeof length) return false;
    std::memcpy(&length, blob.data(), sizeof length);
    blob.remove_prefix(sizeof length);
    if (length > blob.size()) return false;
    fields.emplace_back(blob.substr(0, length));
    blob.remove_prefix(length);
  }
  return true;
}

}  // namespace kolo
