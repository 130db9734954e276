#include "bindings/core/output_file.h"

#include "bindings/core/global.h"
#include "runtime/base/output_file.h"

namespace kolo {

std::filesystem::path file_to_replace(const std::filesystem::path& path) {
  return value_or_throw(file_at(path));
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  throw_if_failed(write_new_file(path, bytes));
}

}  // namespace kolo
