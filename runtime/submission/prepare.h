// Prepares a call before it is announced: derives rows and splits from the caller's shape, and
// finds what is wrong with the call. A call that can never work is still announced, with a
// complaint, so every rank gets the same error and none waits. With in-order submission it takes
// its sequence number. Pure; called by the runtime on the user's thread.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/submission/entry.h"

namespace kolo {

/// Expects the shape of this rank's whole input in the signature, and the caller's splits. Leaves
/// the shape of a row, complete splits, and the complaint.
void prepare(Entry& entry, const Communicator& communicator);

/// The error that the caller of an in-order call or a message with a complaint gets.
Error refusal_of(const Entry& entry, int rank);

}  // namespace kolo
