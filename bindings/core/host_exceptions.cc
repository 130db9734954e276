#include "bindings/core/host_exceptions.h"

#include <atomic>

namespace kolo {
namespace {

std::atomic<void (*)(const Exception&)> thrower_of_host = nullptr;

}  // namespace

void set_host_exceptions(void (*thrower)(const Exception&)) { thrower_of_host = thrower; }

void rethrow_for_host(const Exception& error) {
  if (const auto thrower = thrower_of_host.load(); thrower != nullptr) thrower(error);
  throw;
}

}  // namespace kolo
