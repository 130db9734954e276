// Callbacks of autograd's engine at the end of a backward. The engine calls none after one that has
// thrown, so the reducers' callbacks are run here: all of them, whoever fails, for other ranks may
// await what a later one sends. Called by hooks on autograd's threads, and by such callbacks.
// Private to bindings/torch.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <functional>

namespace kolo {

/// Calls `call` at the end of the backward that runs, after those that were queued before. The
/// first failure of all of them is thrown once all have run, and those that they have queued.
void queue_backward_callback(std::function<void()> call);

/// Calls `call` whenever a backward comes to `node`, on autograd's thread.
void call_at(torch::autograd::Node& node, std::function<void()> call);

}  // namespace kolo
