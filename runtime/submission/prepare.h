// What a call means before it is announced: rows and splits from the caller's shape, and what is
// wrong with the call. A call that can never work is announced all the same, with a complaint, so
// that every rank gets the one error and none waits; at the ordered door it takes its number. Pure;
// called by the runtime on the user's thread.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/submission/entry.h"

namespace kolo {

/// Expects the shape of this rank's whole input in the signature, and splits as the caller gave
/// them; leaves the row's shape, complete splits, and the complaint.
void prepare(Entry& entry, const Communicator& communicator);

/// What the caller of an ordered call or a message with a complaint gets.
Error refusal_of(const Entry& entry, int rank);

}  // namespace kolo
