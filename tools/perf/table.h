// Prints the sweep's rows as text, with nccl-tests' columns. Used on rank 0 only.
#pragma once

#include "tools/perf/engine.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kolo::perf {

class Table {
 public:
  /// The first engine is kolo. With `percentiles`, p10, p90 and p99 stand beside its time.
  Table(const std::vector<std::unique_ptr<Engine>>& engines, bool percentiles);

  void print_header(Collective collective) const;
  void print_row(const nlohmann::json& row) const;

 private:
  std::vector<std::string> peers_of(bool in_place) const;
  std::string half(const nlohmann::json& row, bool in_place) const;
  std::string peer(const nlohmann::json& row, const std::string& name, bool in_place) const;

  std::vector<std::string> peers_;
  bool percentiles_;
};

}  // namespace kolo::perf
