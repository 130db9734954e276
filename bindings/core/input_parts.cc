#include "bindings/core/input_parts.h"

namespace kolo {
namespace {

const InputParts::NameAt kNone;
thread_local const InputParts::NameAt* parts_of_thread = &kNone;

}  // namespace

InputParts::InputParts(NameAt name_at)
    : name_at_(std::move(name_at)), before_(std::exchange(parts_of_thread, &name_at_)) {}
InputParts::~InputParts() { parts_of_thread = before_; }
const InputParts::NameAt& InputParts::current() { return *parts_of_thread; }

}  // namespace kolo
