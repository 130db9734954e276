// What the flight recorder keeps of an entry. Pure; for the stages that record.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/observe/flight_recorder.h"
#include "runtime/submission/entry.h"

namespace kolo {

/// The views are valid as long as the entry lives.
inline FlightRecorder::Tensor recorded(const Entry& entry, SubmissionMode mode) {
  const Signature& signature = entry.signature;
  return {.name = entry.name,
          .mode = static_cast<std::uint8_t>(mode),
          .kind = signature.kind,
          .type = signature.type,
          .op = signature.op,
          .root = signature.root,
          .bytes = entry.complaint.empty() ? entry.bytes() : flight::kRefusedBytes,
          .step = entry.step,
          .process_set = entry.process_set,
          .submitted = trace_time(entry.submitted_at)};
}

}  // namespace kolo
