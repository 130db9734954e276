// What a kind of link costs, as the tools print it in JSON. Any thread.
#pragma once

#include <kolo/info.h>

#include <nlohmann/json.hpp>

namespace kolo {

/// Null if there is no such link.
inline nlohmann::json to_json(const LinkInfo& link) {
  if (link.latency_us == 0) return nullptr;
  return {{"latency_us", link.latency_us},
          {"GBps", link.gigabytes_per_second},
          {"crowd_us", link.crowd_us}};
}

}  // namespace kolo
