#include "bindings/c/options.h"

#include "bindings/core/global.h"

#include <string>
#include <utility>

namespace kolo {
namespace {

kolo_options values(const kolo_options* given) {
  return given != nullptr ? *given : kolo_options{};
}
std::string name_of(const kolo_options& options) {
  return options.name != nullptr ? options.name : "";
}
double factor(double given) { return given == 0.0 ? 1.0 : given; }

}  // namespace

std::optional<CudaStream> stream_of(const kolo_options* given) {
  const kolo_options options = values(given);
  if (options.on_device == 0) return std::nullopt;
  return CudaStream{options.stream};
}

AllreduceOptions allreduce_options(const kolo_options* given, ReduceOp op) {
  const kolo_options options = values(given);
  return {.op = op,
          .name = name_of(options),
          .prescale = factor(options.prescale),
          .postscale = factor(options.postscale),
          .absent = options.absent != 0,
          .process_set = ProcessSet(options.process_set),
          .stream = stream_of(given)};
}

CollectiveOptions collective_options(const kolo_options* given,
                                     std::shared_ptr<WorkOutput> output) {
  const kolo_options options = values(given);
  return {.name = name_of(options),
          .keep_alive = std::move(output),
          .process_set = ProcessSet(options.process_set),
          .stream = stream_of(given)};
}

ReducescatterOptions reducescatter_options(const kolo_options* given, ReduceOp op,
                                           std::shared_ptr<WorkOutput> output) {
  const kolo_options options = values(given);
  return {.op = op,
          .name = name_of(options),
          .prescale = factor(options.prescale),
          .postscale = factor(options.postscale),
          .keep_alive = std::move(output),
          .process_set = ProcessSet(options.process_set),
          .stream = stream_of(given)};
}

MessageOptions message_options(const kolo_options* given, std::uint32_t tag) {
  return {
      .tag = tag, .process_set = ProcessSet(values(given).process_set), .stream = stream_of(given)};
}

OutputMemory output_memory(const char* call, const kolo_options* given, DataType type,
                           kolo_work** work) {
  const kolo_options options = values(given);
  if (options.allocate != nullptr) {
    return {.allocate =
                [allocate = options.allocate, context = options.context](const Shape& shape) {
                  return allocate(context, shape.data(), static_cast<int>(shape.size()));
                },
            .own = nullptr};
  }
  if (options.on_device != 0) {
    raise(KOLO_ERROR(kInvalidArgument,
                     "{}(): memory is on the device, and kolo allocates host memory alone: give "
                     "options.allocate",
                     call));
  }
  if (work == nullptr) {
    raise(KOLO_ERROR(kInvalidArgument,
                     "{}(): nobody would find the output: give options.allocate, or a work, whose "
                     "kolo_output() says where it is",
                     call));
  }
  const auto own = std::make_shared<WorkOutput>();
  return {.allocate = [own, type](const Shape& shape) { return own->allocate(shape, type); },
          .own = own};
}

}  // namespace kolo
