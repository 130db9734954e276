#include "bindings/c/guard.h"

#include "bindings/core/global.h"

#include <new>
#include <string>
#include <string_view>

namespace kolo {
namespace {

thread_local std::string last_error;

// kolo_c.h has the error codes of the C++ interface, shifted by one: status 0 is success.
constexpr kolo_status status_of(ErrorCode code) { return static_cast<kolo_status>(code) + 1; }
static_assert(status_of(ErrorCode::kInvalidArgument) == KOLO_ERROR_INVALID_ARGUMENT);
static_assert(status_of(ErrorCode::kMismatch) == KOLO_ERROR_MISMATCH);
static_assert(status_of(ErrorCode::kTimeout) == KOLO_ERROR_TIMEOUT);
static_assert(status_of(ErrorCode::kPeerLost) == KOLO_ERROR_PEER_LOST);
static_assert(status_of(ErrorCode::kTransport) == KOLO_ERROR_TRANSPORT);
static_assert(status_of(ErrorCode::kDevice) == KOLO_ERROR_DEVICE);
static_assert(status_of(ErrorCode::kOutOfMemory) == KOLO_ERROR_OUT_OF_MEMORY);
static_assert(status_of(ErrorCode::kUnsupported) == KOLO_ERROR_UNSUPPORTED);
static_assert(status_of(ErrorCode::kAborted) == KOLO_ERROR_ABORTED);
static_assert(status_of(ErrorCode::kShutdown) == KOLO_ERROR_SHUTDOWN);
static_assert(status_of(ErrorCode::kInternal) == KOLO_ERROR_INTERNAL);

constexpr bool equal(DataType a, kolo_type b) { return static_cast<kolo_type>(a) == b; }
static_assert(equal(DataType::kFloat32, KOLO_FLOAT32) && equal(DataType::kFloat64, KOLO_FLOAT64) &&
              equal(DataType::kBFloat16, KOLO_BFLOAT16) && equal(DataType::kInt64, KOLO_INT64) &&
              equal(DataType::kFloat16, KOLO_FLOAT16) && equal(DataType::kInt32, KOLO_INT32) &&
              equal(DataType::kInt16, KOLO_INT16) && equal(DataType::kInt8, KOLO_INT8) &&
              equal(DataType::kUInt8, KOLO_UINT8) && equal(DataType::kBool, KOLO_BOOL) &&
              equal(DataType::kComplex64, KOLO_COMPLEX64) &&
              equal(DataType::kComplex128, KOLO_COMPLEX128) && kDataTypeCount == 12);

constexpr bool equal(ReduceOp a, kolo_op b) { return static_cast<kolo_op>(a) == b; }
static_assert(equal(ReduceOp::kSum, KOLO_SUM) && equal(ReduceOp::kAverage, KOLO_AVERAGE) &&
              equal(ReduceOp::kMin, KOLO_MIN) && equal(ReduceOp::kMax, KOLO_MAX) &&
              equal(ReduceOp::kProduct, KOLO_PRODUCT) && equal(ReduceOp::kAdasum, KOLO_ADASUM) &&
              kReduceOpCount == 6);

/// Replaces C++ call names in a message by C's: "kolo_init()" for "kolo::init()".
std::string in_c(std::string message) {
  const auto replace = [&message](std::string_view word, std::string_view by) {
    for (std::size_t at = message.find(word); at != std::string::npos; at = message.find(word, at))
      message.replace(at, word.size(), by);
  };
  replace("kolo::", "kolo_");
  replace("_async()", "()");
  return message;
}

kolo_status keep(kolo_status status, const char* message) noexcept {
  try {
    last_error = in_c(message);
  } catch (...) {
    last_error.clear();  // no memory for the message: only the status remains
  }
  return status;
}

}  // namespace

kolo_status keep_error() noexcept {
  try {
    throw;
  } catch (const Exception& error) {
    return keep(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return keep(KOLO_ERROR_OUT_OF_MEMORY, "this process has no memory left");
  } catch (const std::exception& error) {
    return keep(KOLO_ERROR_INTERNAL, error.what());
  } catch (...) {
    return keep(KOLO_ERROR_INTERNAL, "an exception that is no std::exception");
  }
}

DataType type_of(const char* call, kolo_type type) {
  if (type < 0 || type >= kDataTypeCount) {
    raise(KOLO_ERROR(kInvalidArgument, "{}(): there is no element type {}: they are 0 to {}", call,
                     type, kDataTypeCount - 1));
  }
  return static_cast<DataType>(type);
}

ReduceOp op_of(const char* call, kolo_op op) {
  if (op < 0 || op >= kReduceOpCount) {
    raise(KOLO_ERROR(kInvalidArgument, "{}(): there is no reduction {}: they are 0 to {}", call, op,
                     kReduceOpCount - 1));
  }
  return static_cast<ReduceOp>(op);
}

Shape shape_of(const char* call, const std::int64_t* shape, int dimensions) {
  if (dimensions < 0) raise(KOLO_ERROR(kInvalidArgument, "{}(): {} dimensions", call, dimensions));
  if (dimensions == 0) return {};
  need(call, shape, "shape");
  return {shape, shape + dimensions};
}

void need(const char* call, const void* pointer, const char* what) {
  if (pointer == nullptr) raise(KOLO_ERROR(kInvalidArgument, "{}(): {} is null", call, what));
}

}  // namespace kolo

const char* kolo_last_error(void) { return kolo::last_error.c_str(); }

const char* kolo_status_name(kolo_status status) {
  if (status == KOLO_SUCCESS) return "success";
  if (status < KOLO_SUCCESS || status > KOLO_ERROR_INTERNAL) return "no status";
  // data() points to a string literal, so it is null-terminated.
  return kolo::to_string(static_cast<kolo::ErrorCode>(status - 1)).data();
}

size_t kolo_type_size(kolo_type type) {
  return type < 0 || type >= kolo::kDataTypeCount
             ? 0
             : kolo::size_of(static_cast<kolo::DataType>(type));
}
