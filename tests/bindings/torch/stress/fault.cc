#include "tests/bindings/torch/stress/fault.h"

#include "tests/support/sleeping_thread.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace kolo::test {
namespace {

/// Signals the starter of this program.
void tell() {
  std::printf("fault\n");
  std::fflush(stdout);
}

[[noreturn]] void throw_fault(const char* where) {
  tell();
  throw Fault(where);
}

}  // namespace

void FaultOptions::add_to(CLI::App& app) {
  app.add_option("--fault", fault, "What one rank does in the midst")
      ->check(CLI::IsMember({"abort",         "comm_hook",    "data",       "exit",   "forward",
                             "gradient_hook", "handler_exit", "kill",       "late",   "late_kill",
                             "left_out",      "more",         "quick_exit", "return", "segv",
                             "shutdown",      "skip",         "sparse",     "stop",   "thread_exit",
                             "throw",         "unwind"}));
  app.add_option("--victim", victim, "The rank that does it");
  app.add_option("--fault-step", step, "Step in which it does; -1: before the first");
  app.add_option("--fault-point", point, "Place within that step");
  app.add_option("--fault-delay", delay, "Microseconds from there, of late_kill and the like");
}

void FaultyRank::arm() {
  for (std::size_t m = 0; m < training_->model_count(); ++m) {
    NetworkImpl& network = training_->network(m);
    if (options_.fault == "forward") {
      const int at = options_.delay % 4;
      network.before_layer = [at](std::size_t layer) {
        if (static_cast<int>(layer) == at) throw_fault("forward");
      };
    }
    if (options_.fault != "gradient_hook") continue;
    const auto parameters = network.parameters();
    auto parameter = parameters[static_cast<std::size_t>(options_.delay) % parameters.size()];
    if (!parameter.requires_grad()) continue;
    parameter.register_hook([](const torch::Tensor&) { throw_fault("gradient hook"); });
  }
  if (options_.fault == "comm_hook")
    within_comm_hooks() = [] { throw_fault("communication hook"); };
}

/// Sets whether the gradients of its embeddings are sparse.
void FaultyRank::make_sparse(bool sparse) const {
  for (const auto& module : training_->network(0).modules()) {
    auto* const table = module->as<torch::nn::Embedding>();
    if (table == nullptr) continue;
    table->options.sparse(sparse);
    if (sparse) tell();
  }
}

bool FaultyRank::mends() const {
  const std::string& fault = options_.fault;
  if (fault == "late") return training_->can_redo_late();
  if ((fault != "sparse" && fault != "left_out") || !training_->can_redo()) return false;
  if (fault == "sparse") make_sparse(false);
  return true;
}

/// On another thread.
void FaultyRank::later(std::function<void()> what) const {
  std::thread([what = std::move(what), delay = options_.delay] {
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    what();
  }).detach();
}

void FaultyRank::fail() {
  if (!is_victim_ || has_failed_) return;
  const std::string& fault = options_.fault;
  const bool is_armed = fault == "forward" || fault == "gradient_hook" || fault == "comm_hook";
  if (is_armed && (training_ == nullptr || !training_->is_whole())) return;  // later
  has_failed_ = true;
  if (is_armed) return arm();
  if (fault == "data") {
    is_unreadable_ = true;
    return;
  }
  if (fault == "skip" || fault == "more" || fault == "sparse" || fault == "left_out" ||
      fault == "late")
    return;  // between steps
  if (fault == "return") {
    ends_ = true;
    return;
  }
  tell();
  if (fault == "kill") std::raise(SIGKILL);
  if (fault == "stop") std::raise(SIGSTOP);
  if (fault == "segv") std::raise(SIGSEGV);
  if (fault == "exit") std::exit(0);
  if (fault == "quick_exit") ::_exit(0);
  if (fault == "throw") std::thread([] { throw std::runtime_error("enough"); }).join();
  if (fault == "late_kill") later([] { std::raise(SIGKILL); });
  if (fault == "thread_exit") later([] { std::exit(0); });
  if (fault == "handler_exit") {
    std::signal(SIGTERM, [](int) { std::exit(0); });
    // Where it waits: exit() in the midst of malloc() would never end, with kolo or without.
    later([training = pthread_self(), thread = gettid()] {
      while (!sleeps(thread)) std::this_thread::yield();
      pthread_kill(training, SIGTERM);
    });
  }
  if (fault == "unwind") throw Fault("the disk is full");
  if (fault == "abort") abort("the disk is full");
  if (fault == "shutdown") shutdown();
}

void FaultyRank::at_point() {
  if (step_ == options_.step && point_++ == options_.point) fail();
}

void FaultyRank::in_data_set() {
  if (is_unreadable_) throw_fault("data set");
}

void FaultyRank::begin_step() {
  ++step_;
  point_ = 0;
  if (!is_victim_ || step_ < options_.step) return;
  // In every step from this one on.
  if (options_.fault == "sparse" && training_->can_redo()) make_sparse(true);
  if (options_.fault == "left_out" && training_->can_redo()) {
    tell();
    training_->leave_out();
  }
  if (options_.fault == "late" && !was_late_ && training_->can_redo()) {
    training_->network(0).before_layer = [this](std::size_t) {
      if (std::exchange(was_late_, true)) return;
      tell();
      std::this_thread::sleep_for(std::chrono::microseconds(options_.delay));
    };
  }
  if (options_.fault != "skip" || step_ != options_.step) return;
  tell();
  training_->skip();
}

bool FaultyRank::end_step() {
  if (is_victim_ && options_.fault == "sparse") make_sparse(false);
  if (is_victim_ && step_ == options_.step) {
    fail();
    if (options_.fault == "more") {
      tell();
      training_->back();
    }
  }
  if (!ends_) return true;
  tell();
  // A rank that leaves a Join without an exception waits for the others.
  if (training_->has_join()) throw Fault("return");
  return false;
}

}  // namespace kolo::test
