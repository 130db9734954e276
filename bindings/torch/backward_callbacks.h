// Callbacks of autograd's engine at the end of a backward. The engine calls none after one that has
// thrown, so the reducers' callbacks are run here: all of them, whoever fails, for other ranks may
// await what a later one sends. Called by hooks on autograd's threads, and by such callbacks.
// Private to bindings/torch.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <functional>

namespace kolo {

/// Calls `call` whenever a backward is about to run this node, on the thread that does.
void call_before(torch::autograd::Node& node, std::function<void()> call);

/// Calls `call` at the end of the backward that runs, after those that were queued before. The
/// first failure of all of them is thrown once all have run, and those that they have queued.
void queue_backward_callback(std::function<void()> call);

/// Within a node of an outer backward, in which an inner one ends (activation checkpointing): calls
/// `call` as soon as the outer one goes on to a node behind that one, so that what `call` queues
/// belongs to the outer one.
void call_in_outer_backward(std::function<void()> call);

}  // namespace kolo
