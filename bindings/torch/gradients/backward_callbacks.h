// Callbacks of autograd's engine at the end of a backward. The engine skips callbacks after one has
// thrown. This file runs the reducers' callbacks even so, because other ranks may wait for what a
// later callback sends. Called by hooks on autograd's threads, and by such callbacks. Private to
// bindings/torch.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <functional>

namespace kolo {

/// Calls `call` whenever a backward is about to run this node, on the thread that runs it.
void call_before(torch::autograd::Node& node, std::function<void()> call);

/// Calls `call` at the end of the current backward, after callbacks that were queued before. The
/// first failure is thrown once all callbacks have run, including those that callbacks have queued.
void queue_backward_callback(std::function<void()> call);

/// For an inner backward that ends within a node of an outer one (activation checkpointing). Calls
/// `call` as soon as the outer backward reaches a node behind this one, so that what `call` queues
/// belongs to the outer backward.
void call_in_outer_backward(std::function<void()> call);

}  // namespace kolo
