// Worlds over several hosts, emulated by threads of one process, whose ranks have emulated
// accelerators, with or without network cards that reach them. Header-only.
#pragma once

#include "tests/support/device_world.h"
#include "tests/support/emulated_card.h"
#include "tests/support/faulty_transport.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

namespace kolo::test {

struct Place {
  const char* name;
  std::vector<int> hosts;    ///< by rank
  std::vector<int> devices;  ///< by rank: equal numbers share one
  bool maps = true;          ///< devices of a host reach each other
  bool direct = false;       ///< network cards reach the devices
};

inline void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }

inline const std::vector<Place> kPlaces = {
    {"TwoByTwo", {0, 0, 1, 1}, {0, 1, 2, 3}},
    {"TwoByOne", {0, 1}, {0, 1}},
    {"ThreeAndOne", {0, 0, 0, 1}, {0, 1, 2, 3}},
    {"FourByOne", {0, 1, 2, 3}, {0, 1, 2, 3}},
    {"Dealt", {0, 1, 0, 1, 2}, {0, 1, 2, 3, 4}},
    {"Shared", {0, 0, 1, 1}, {0, 0, 1, 1}},
    {"SharedByTwoOfThree", {0, 0, 0, 1, 1}, {0, 1, 1, 2, 2}},
    {"Unmapped", {0, 0, 1, 1}, {0, 1, 2, 3}, false},
    {"TwoByTwoDirect", {0, 0, 1, 1}, {0, 1, 2, 3}, true, true},
    {"FourByOneDirect", {0, 1, 2, 3}, {0, 1, 2, 3}, true, true},
    {"DealtDirect", {0, 1, 0, 1, 2}, {0, 1, 2, 3, 4}, true, true},
    {"SharedDirect", {0, 0, 1, 1}, {0, 0, 1, 1}, true, true},
};

struct DeviceSet {
  std::vector<std::shared_ptr<EmulatedDevice>> of;
};

inline LocalWorldOptions options_of(const Place& place, const char* chunk, DeviceSet& devices) {
  LocalWorldOptions options;
  options.hosts = place.hosts;
  options.variables = {
      {"KOLO_DEVICE_CHUNK", chunk}, {"KOLO_DEVICE_MEMORY", "16M"}, {"KOLO_DEVICE_ARENA", "8M"}};
  std::map<int, std::shared_ptr<EmulatedDevice>> by_number;
  for (const int number : place.devices) {
    auto& device = by_number[number];
    if (device == nullptr)
      device = std::make_shared<EmulatedDevice>(static_cast<std::uint8_t>(number + 1));
    if (!place.maps) device->forbid_import();
    devices.of.push_back(device);
  }
  options.accelerator = [&devices](int rank) -> std::unique_ptr<Accelerator> {
    return std::make_unique<EmulatedAccelerator>(devices.of[static_cast<std::size_t>(rank)], 0);
  };
  if (place.direct)
    options.decorate = [&devices](int rank, std::unique_ptr<Transport> inner) {
      return std::make_unique<EmulatedCard>(std::move(inner),
                                            devices.of[static_cast<std::size_t>(rank)]);
    };
  return options;
}

/// Decides the fate of messages by their sending rank.
inline void decorate(LocalWorldOptions& options,
                     std::function<Fault(int rank, const FaultyCall& call)> decide) {
  options.decorate = [decide = std::move(decide), before = std::move(options.decorate)](
                         int rank, std::unique_ptr<Transport> inner) {
    if (before) inner = before(rank, std::move(inner));
    return std::make_unique<FaultyTransport>(
        std::move(inner), [decide, rank](const FaultyCall& call) { return decide(rank, call); });
  };
}

}  // namespace kolo::test
