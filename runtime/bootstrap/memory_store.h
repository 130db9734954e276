// MemoryStore: the store of ranks that are threads of one process. Any thread may call it.
#pragma once

#include "runtime/bootstrap/store.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace kolo {

class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::string value) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;
  Result<std::string> set_once(std::string_view key, std::string value) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace kolo
