// Callbacks of autograd's engine at the end of a backward. The engine calls none after one that has
// thrown, so the reducers' callbacks are run here: all of them, whoever fails, for other ranks may
// await what a later one sends. Called by hooks on autograd's threads, and by such callbacks.
// Private to bindings/torch.
#pragma once

#include <functional>

namespace kolo {

/// Calls `call` at the end of the backward that runs, after those that were queued before. The
/// first failure of all of them is thrown once all have run, and those that they have queued.
void queue_backward_callback(std::function<void()> call);

}  // namespace kolo
