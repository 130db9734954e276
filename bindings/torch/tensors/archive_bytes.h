// The bytes of LibTorch's archives. Private to bindings/torch; any thread.
#pragma once

#include <torch/serialize/archive.h>

#include <sstream>
#include <string>
#include <utility>

namespace kolo {

inline std::string bytes_of(torch::serialize::OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

}  // namespace kolo
