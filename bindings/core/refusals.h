// Calls that this rank cannot take part in, for the bindings: the ranks agree on the refusal as
// they do on the operation, so that it is an error on all of them and nobody waits. Any thread.
#pragma once

#include "runtime/submission/entry.h"

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <memory>
#include <string>
#include <vector>

namespace kolo {

/// A named or unnamed call that is refused before it is one of the core's. The other ranks know an
/// unnamed one by its signature, with the shape of the whole input; of a named one the kind counts.
struct RefusedCall {
  std::string name = {};
  Signature signature = {};
};

/// What this rank submits in place of these calls, of one group if `group` has a name or they are
/// several: they fail on every rank with this one's number and `why`. Work by call.
KOLO_API std::vector<std::shared_ptr<Work>> refuse(std::vector<RefusedCall> calls,
                                                   const std::string& why, const std::string& group,
                                                   const ProcessSet& process_set);

/// refuse() of all-reduces of these names.
KOLO_API std::vector<std::shared_ptr<Work>> refuse_allreduces(const std::vector<std::string>& names,
                                                              const std::string& why,
                                                              const std::string& group,
                                                              const ProcessSet& process_set);

/// What this rank calls in place of a call of the ordered door that a binding refuses before it is
/// one of the core's. It takes its number: ranks that do not refuse theirs are out of step, and are
/// told `why`. The caller says at once what is wrong. Waits for no rank, and does nothing where
/// kolo does not run.
KOLO_API void refuse_ordered(OperationKind kind, const std::string& why,
                             const ProcessSet& process_set);

}  // namespace kolo
