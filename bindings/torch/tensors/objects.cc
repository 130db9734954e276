// Bytes of any length over collectives on int64 tensors. A failure travels as its text, announced
// with the length −1 − length.
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <cstring>

namespace kolo {
namespace {

constexpr std::int64_t kWord = sizeof(std::int64_t);

/// The parts of an unnamed operation stay unnamed; call order tells them apart.
std::string part(const ObjectOptions& options, const char* what) {
  return options.name.empty() ? std::string() : options.name + "/" + what;
}

const std::string& content_of(const Parcel& parcel) {
  return parcel.failure.empty() ? parcel.bytes : parcel.failure;
}

std::int64_t told_of(const Parcel& parcel) {
  const auto length = static_cast<std::int64_t>(content_of(parcel).size());
  return parcel.failure.empty() ? length : -1 - length;
}

std::int64_t length_of(std::int64_t told) { return told < 0 ? -1 - told : told; }
std::int64_t words_of(std::int64_t told) { return (length_of(told) + kWord - 1) / kWord; }

std::string string_of(const std::int64_t* words, std::int64_t told) {
  std::string bytes(static_cast<std::size_t>(length_of(told)), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), words, bytes.size());
  return bytes;
}

[[noreturn]] void raise_failure(int rank, const std::string& failure) {
  raise(ErrorCode::kInvalidArgument, "rank " + std::to_string(rank) + ": " + failure);
}

}  // namespace

void check_number(std::size_t bytes, std::size_t size) {
  if (bytes == size) return;
  raise(ErrorCode::kMismatch, "an object of " + std::to_string(bytes) +
                                  " bytes came where a number of " + std::to_string(size) +
                                  " is expected; use one type on all ranks");
}

void check_defined(const torch::Tensor& tensor) {
  if (tensor.defined()) return;
  raise(ErrorCode::kInvalidArgument,
        "the value to send is, or has, an undefined tensor; give it a value first, as "
        "torch::empty({0})");
}

std::string broadcast_bytes(Parcel parcel, int root, const ObjectOptions& options) {
  const bool is_root = rank() == root;
  const std::int64_t told =
      broadcast(torch::tensor(is_root ? told_of(parcel) : 0, torch::kInt64), root,
                {.name = part(options, "length"), .process_set = options.process_set})
          .item<std::int64_t>();
  torch::Tensor words = torch::zeros({words_of(told)}, torch::kInt64);
  if (const std::string& mine = content_of(parcel); is_root && !mine.empty()) {
    std::memcpy(words.data_ptr(), mine.data(), mine.size());
  }
  broadcast_(words, root, {.name = part(options, "bytes"), .process_set = options.process_set});
  if (is_root && told >= 0) return std::move(parcel.bytes);
  std::string bytes = string_of(words.const_data_ptr<std::int64_t>(), told);
  if (told < 0) raise_failure(root, bytes);
  return bytes;
}

std::vector<std::string> allgather_bytes(const Parcel& parcel, const ObjectOptions& options) {
  // Each rank's rows: its announced length, then the bytes.
  const std::string& mine = content_of(parcel);
  torch::Tensor rows = torch::zeros({1 + words_of(told_of(parcel))}, torch::kInt64);
  rows[0] = told_of(parcel);
  if (!mine.empty()) std::memcpy(rows.data_ptr<std::int64_t>() + 1, mine.data(), mine.size());
  const torch::Tensor gathered =
      allgather(rows, {.name = options.name, .process_set = options.process_set});
  const auto* word = gathered.const_data_ptr<std::int64_t>();
  std::vector<std::string> all;
  for (const int rank : options.process_set.ranks()) {
    const std::int64_t told = *word++;
    all.push_back(string_of(word, told));
    word += words_of(told);
    if (told < 0) raise_failure(rank, all.back());
  }
  return all;
}

std::string reason_of(const std::exception& exception) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&exception);
  std::string what = of_torch != nullptr ? of_torch->what_without_backtrace() : exception.what();
  what = what.substr(0, what.find('\n'));
  // LibTorch says so if an archive holds something that the object does not read.
  if (const std::size_t end = what.find(", please report a bug to PyTorch");
      end != std::string::npos)
    what = what.substr(0, end) + " (was it saved from something of another kind?)";
  return what.empty() ? "an exception without a message" : what;
}

}  // namespace kolo
