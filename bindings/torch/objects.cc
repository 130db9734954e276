// Bytes of any length over collectives on int64 tensors.
#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <algorithm>
#include <cstring>

namespace kolo {
namespace {

constexpr std::int64_t kWord = sizeof(std::int64_t);

std::int64_t words_of(std::int64_t length) { return (length + kWord - 1) / kWord; }

/// An unnamed operation stays so: its parts are then told apart by call order.
std::string part(const ObjectOptions& options, const char* what) {
  return options.name.empty() ? std::string() : options.name + "/" + what;
}

std::string string_of(const std::int64_t* words, std::int64_t length) {
  std::string bytes(static_cast<std::size_t>(length), '\0');
  if (length > 0) std::memcpy(bytes.data(), words, bytes.size());
  return bytes;
}

}  // namespace

std::string broadcast_bytes(std::string bytes, int root, const ObjectOptions& options) {
  const bool is_root = rank() == root;
  const auto mine = static_cast<std::int64_t>(bytes.size());
  const std::int64_t length = broadcast(torch::tensor(is_root ? mine : 0, torch::kInt64), root,
                                        {.name = part(options, "length")})
                                  .item<std::int64_t>();
  torch::Tensor words = torch::zeros({words_of(length)}, torch::kInt64);
  if (is_root && mine > 0) std::memcpy(words.data_ptr(), bytes.data(), bytes.size());
  broadcast_(words, root, {.name = part(options, "bytes")});
  return is_root ? std::move(bytes) : string_of(words.const_data_ptr<std::int64_t>(), length);
}

std::vector<std::string> allgather_bytes(const std::string& bytes, const ObjectOptions& options) {
  // Sums in which all but one rank have zeros, hence exact for any bytes.
  torch::Tensor lengths = torch::zeros({size()}, torch::kInt64);
  lengths[rank()] = static_cast<std::int64_t>(bytes.size());
  allreduce_(lengths, {.name = part(options, "lengths")});
  const auto* const length = lengths.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> first(static_cast<std::size_t>(size()) + 1, 0);
  for (std::size_t i = 0; i + 1 < first.size(); ++i) first[i + 1] = first[i] + words_of(length[i]);
  torch::Tensor words = torch::zeros({first.back()}, torch::kInt64);
  auto* const word = words.data_ptr<std::int64_t>();
  if (!bytes.empty()) {
    std::memcpy(word + first[static_cast<std::size_t>(rank())], bytes.data(), bytes.size());
  }
  allreduce_(words, {.name = part(options, "bytes")});
  std::vector<std::string> all;
  for (std::size_t i = 0; i + 1 < first.size(); ++i) {
    all.push_back(string_of(word + first[i], length[i]));
  }
  return all;
}

}  // namespace kolo
