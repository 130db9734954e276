#include "runtime/device/device_choice.h"

#include "runtime/base/check.h"

#include <charconv>
#include <string_view>

namespace kolo {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";

Result<int> ordinal_of(std::string_view knob) {
  int ordinal = -1;
  std::string_view number = knob;
  if (number.starts_with(kCudaPrefix)) number.remove_prefix(kCudaPrefix.size());
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, ordinal);
  if (error == std::errc() && rest == end && ordinal >= 0) return ordinal;
  return KOLO_ERROR(kInvalidArgument,
                    "KOLO_DEVICE='{}' is no device: expected auto, cpu, or a number as 0 or cuda:0",
                    knob);
}

}  // namespace

Result<std::optional<int>> choose_device(const DeviceWish& wish, const Accelerators& visible) {
  std::optional<int> wanted = wish.option;
  std::string who = "InitOptions::device";
  if (!wanted) {
    if (wish.knob == "cpu") return std::optional<int>();
    if (wish.knob == "auto") {
      if (visible.count == 0) return std::optional<int>();
      return std::optional(wish.local_rank % visible.count);
    }
    who = "KOLO_DEVICE";
    KOLO_ASSIGN(wanted, ordinal_of(wish.knob));
  }
  if (visible.count == 0)
    return KOLO_ERROR(kUnsupported, "{} is {}, but this process has no CUDA device: {}", who,
                      *wanted, visible.reason);
  if (*wanted < 0 || *wanted >= visible.count)
    return KOLO_ERROR(kInvalidArgument,
                      "{} is {}, but this process sees {} CUDA devices, 0 to {}; see "
                      "CUDA_VISIBLE_DEVICES",
                      who, *wanted, visible.count, visible.count - 1);
  return wanted;
}

}  // namespace kolo
