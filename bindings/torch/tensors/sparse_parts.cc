#include "bindings/torch/tensors/sparse_parts.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

namespace kolo {
namespace {

// A part: a head, the extents, the indices (a row for each sparse dimension), the values.
constexpr std::int64_t kWord = sizeof(std::int64_t);
/// Each of the four begins at a multiple of this, where an element of any type may lie.
constexpr std::int64_t kUnit = 2;

std::int64_t whole_units(std::int64_t words) { return (words + kUnit - 1) / kUnit * kUnit; }

/// Words of a part's head; they precede the extents.
struct Head {
  std::int64_t words = 0;  ///< length of the whole part
  std::int64_t rank = 0;   ///< in the process set
  std::int64_t type = 0;
  std::int64_t sparse_dimensions = 0;
  std::int64_t dimensions = 0;
  std::int64_t elements = 0;  ///< indices, each of which has a value or a block of them
};
constexpr std::int64_t kHeadWords = sizeof(Head) / kWord;
static_assert(kHeadWords % kUnit == 0);

/// What a part holds, on its device.
struct Part {
  Head head;
  Shape shape;
  torch::Tensor indices;
  torch::Tensor values;

  torch::ScalarType type() const { return static_cast<torch::ScalarType>(head.type); }
  std::string text() const {
    return fmt::format("{} {} with {} sparse dimensions", torch::toString(type()), to_string(shape),
                       head.sparse_dimensions);
  }
  bool is_like(const Part& other) const {
    return shape == other.shape && head.type == other.head.type &&
           head.sparse_dimensions == other.head.sparse_dimensions;
  }
};

/// One value for each index. Half types are added in float32 and rounded once.
torch::Tensor coalesced(const torch::Tensor& tensor) {
  const torch::ScalarType type = tensor.scalar_type();
  const bool is_half = type == torch::kFloat16 || type == torch::kBFloat16;
  if (tensor.is_coalesced() || !is_half) return tensor.coalesce();
  return tensor.to(torch::kFloat32).coalesce().to(type);
}

torch::Tensor bytes_of(const torch::Tensor& tensor) {
  return tensor.contiguous().view({-1}).view(torch::kUInt8);
}

/// Takes the part that begins at `begin`.
Part part_at(const torch::Tensor& parts, std::int64_t begin) {
  Part part;
  const torch::Tensor head = parts.narrow(0, begin, kHeadWords).cpu();
  const auto* const word = head.const_data_ptr<std::int64_t>();
  part.head = {word[0], word[1], word[2], word[3], word[4], word[5]};
  std::int64_t at = begin + kHeadWords;
  const torch::Tensor extents = parts.narrow(0, at, part.head.dimensions).cpu();
  const auto* const extent = extents.const_data_ptr<std::int64_t>();
  part.shape.assign(extent, extent + part.head.dimensions);
  at += whole_units(part.head.dimensions);
  const std::int64_t of_indices = part.head.sparse_dimensions * part.head.elements;
  part.indices =
      parts.narrow(0, at, of_indices).view({part.head.sparse_dimensions, part.head.elements});
  at += whole_units(of_indices);
  std::vector<std::int64_t> sizes(part.shape.begin() + part.head.sparse_dimensions,
                                  part.shape.end());
  sizes.insert(sizes.begin(), part.head.elements);
  const std::int64_t count = c10::multiply_integers(sizes);
  part.values = parts.narrow(0, at, begin + part.head.words - at)
                    .view(part.type())
                    .narrow(0, 0, count)
                    .view(sizes);
  return part;
}

}  // namespace

torch::Tensor sparse_part_of(const torch::Tensor& tensor, const torch::Device& device,
                             const ProcessSet& set, double scale) {
  const torch::NoGradGuard no_grad;
  const auto words_there = torch::TensorOptions(torch::kInt64).device(device);
  if (!tensor.defined()) return torch::empty({0}, words_there);
  const torch::Tensor mine = coalesced(tensor.detach());
  const torch::Tensor indices = mine.indices();
  // Integers stay integers if there is nothing to scale.
  const torch::Tensor scaled = scale == 1.0 ? mine.values() : mine.values() * scale;
  const torch::Tensor values = bytes_of(scaled);
  const std::int64_t extents = whole_units(mine.dim());
  const std::int64_t of_indices = whole_units(indices.numel());
  const std::int64_t of_values = whole_units((values.numel() + kWord - 1) / kWord);
  std::vector<std::int64_t> head{kHeadWords + extents + of_indices + of_values,
                                 set.rank(),
                                 static_cast<std::int64_t>(scaled.scalar_type()),
                                 mine.sparse_dim(),
                                 mine.dim(),
                                 indices.size(1)};
  head.insert(head.end(), mine.sizes().begin(), mine.sizes().end());
  torch::Tensor part = torch::zeros({head.front()}, words_there);
  const auto of_head = static_cast<std::int64_t>(head.size());
  part.narrow(0, 0, of_head).copy_(torch::tensor(head, torch::kInt64));
  const std::int64_t at = kHeadWords + extents;
  part.narrow(0, at, indices.numel()).copy_(indices.reshape({-1}));
  part.narrow(0, at + of_indices, of_values)
      .view(torch::kUInt8)
      .narrow(0, 0, values.numel())
      .copy_(values);
  return part;
}

torch::Tensor sum_of_sparse_parts(const torch::Tensor& parts, const std::string& what,
                                  const ProcessSet& set) {
  const torch::NoGradGuard no_grad;
  std::vector<Part> all;
  for (std::int64_t at = 0; at < parts.numel(); at += all.back().head.words)
    all.push_back(part_at(parts, at));
  if (all.empty()) return {};
  const Part& first = all.front();
  std::vector<torch::Tensor> indices;
  std::vector<torch::Tensor> values;
  for (const Part& part : all) {
    if (!part.is_like(first)) {
      const std::vector<int> ranks = set.ranks();
      const auto rank_of = [&](const Part& of) {
        return ranks[static_cast<std::size_t>(of.head.rank)];
      };
      raise(ErrorCode::kMismatch,
            fmt::format("{}: rank {} has {}, but rank {} has {}; every rank must pass the same",
                        what, rank_of(first), first.text(), rank_of(part), part.text()));
    }
    indices.push_back(part.indices);
    values.push_back(part.values);
  }
  return coalesced(torch::sparse_coo_tensor(torch::cat(indices, 1), torch::cat(values), first.shape,
                                            values.front().options().layout(torch::kSparse)));
}

}  // namespace kolo
