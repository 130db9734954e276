// For the bindings: calls that this rank cannot take part in. The ranks agree on a refusal as they
// do on an operation, so the call fails on all of them and no rank waits. Any thread.
#pragma once

#include "runtime/submission/entry.h"

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// Returns the result of `check`, which checks the arguments of a call. If it throws, `tell` gets
/// the exception to tell the other ranks, and the exception goes on.
template <class Check, class Tell>
auto checked(Check&& check, Tell&& tell) {
  try {
    return std::forward<Check>(check)();
  } catch (const std::exception& error) {
    std::forward<Tell>(tell)(error);
    throw;
  }
}

/// A call that a binding refuses before it reaches the core. The other ranks recognise an unnamed
/// call by its signature, with the shape of the whole input. For a named call only the kind counts.
struct RefusedCall {
  std::string name = {};
  Signature signature = {};
};

/// Submits refusals in place of these calls. They form a group if `group` has a name or there are
/// several calls. They fail on every rank with this rank's number and `why`. Returns one work per
/// call.
KOLO_API std::vector<std::shared_ptr<Work>> refuse(std::vector<RefusedCall> calls,
                                                   const std::string& why, const std::string& group,
                                                   const ProcessSet& process_set);

/// refuse() in the handler of the exception that stops these calls. Rethrows it if kolo does not
/// run.
KOLO_API std::vector<std::shared_ptr<Work>> refuse_caught(std::vector<RefusedCall> calls,
                                                          const std::string& why,
                                                          const std::string& group,
                                                          const ProcessSet& process_set);

/// Takes the place of a call of start_by_order(), which fails on every rank with this rank's number
/// and `why`. The caller reports the error itself, and the process set may be removed meanwhile.
/// Waits for no rank; does nothing if kolo does not run.
KOLO_API void refuse_by_order(OperationKind kind, const std::string& why,
                              const ProcessSet& process_set);

/// refuse() for all-reduces of these names.
KOLO_API std::vector<std::shared_ptr<Work>> refuse_allreduces(const std::vector<std::string>& names,
                                                              const std::string& why,
                                                              const std::string& group,
                                                              const ProcessSet& process_set);

/// For an unnamed call that fails on this rank and that the other ranks cannot recognise. Later
/// unnamed calls of this kind only meet those of ranks on which as many have failed, until a
/// join(). Does nothing if kolo does not run.
KOLO_API void count_failed_unnamed(OperationKind kind, const ProcessSet& process_set);

/// Takes the place of an in-order call that a binding refuses before it reaches the core. The
/// refusal takes the call's number. Ranks that do not refuse theirs are out of step and get `why`
/// as error. The caller reports the error itself. Waits for no rank; does nothing if kolo does not
/// run.
KOLO_API void refuse_ordered(OperationKind kind, const std::string& why,
                             const ProcessSet& process_set);

/// Takes the place of a message (kSend or kReceive) that a binding refuses before it reaches the
/// core. The message of `peer` that would meet it fails with this rank's number and `why`. The
/// caller reports the error itself. Waits for no rank; does nothing if kolo does not run or `peer`
/// is no rank.
KOLO_API void refuse_message(OperationKind kind, int peer, std::uint32_t tag,
                             const std::string& why, const ProcessSet& process_set);

}  // namespace kolo
