#include "bindings/core/step_scope.h"

namespace kolo {
namespace {

thread_local std::uint64_t step_of_thread = 0;

}  // namespace

StepScope::StepScope(std::uint64_t step) : before_(std::exchange(step_of_thread, step)) {}
StepScope::~StepScope() { step_of_thread = before_; }
std::uint64_t StepScope::current() { return step_of_thread; }

}  // namespace kolo
