// ProgressToken: exactly one thread at a time drives transport, controller and executors: its
// holder. The background thread holds it while nobody else does; a thread that waits for its own
// operation takes precedence. (The idea of a progress token is that of MPI libraries' progress
// locks, with an order of precedence.)
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace kolo {

class ProgressToken {
 public:
  /// Holding is owning one of these.
  class Hold {
   public:
    Hold(Hold&& other) noexcept
        : token_(std::exchange(other.token_, nullptr)), quietly_(other.quietly_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (token_ != nullptr) token_->release(quietly_);
    }

    /// Nothing is left to drive: the background thread need not be woken for it. It looks again
    /// within kPatience by itself, so a thread that takes the token time and again is not
    /// disturbed.
    void release_quietly() { quietly_ = true; }

   private:
    friend class ProgressToken;
    explicit Hold(ProgressToken& token) : token_(&token) {}
    ProgressToken* token_;
    bool quietly_ = false;
  };

  static constexpr std::chrono::milliseconds kPatience{2};
  /// After which the background thread gets its turn all the same: heartbeats and deadlines are its
  /// business while others take the token without a pause.
  static constexpr std::chrono::milliseconds kLongest{100};

  /// For the background thread: waits until the token is free and nobody else wants it, or it has
  /// waited for kLongest. Nothing after close().
  std::optional<Hold> acquire_background();

  /// For a thread that waits for its operation: takes the token over from the background thread.
  /// Nothing if another such thread holds it (that one drives for both), after `until` or close().
  std::optional<Hold> acquire_for_waiter(std::chrono::steady_clock::time_point until);

  /// For any thread: waits for whoever holds it. Nothing after `until` or close().
  std::optional<Hold> acquire(
      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

  /// Whether somebody waits for it: the background thread then lets go.
  bool wanted() const noexcept { return wanted_.load(std::memory_order_acquire) > 0; }

  /// For the holder: nobody gets it any more, not even after it is released.
  void close();

  bool is_closed() const noexcept { return state_.load() == State::kClosed; }

  /// Stops the process unless the calling thread holds the token.
  void assert_held() const;

 private:
  /// Who holds it; closed, it is that for good, whoever still holds it.
  enum class State : std::uint8_t { kFree, kBackground, kOther, kClosed };

  void release(bool quietly);
  /// Nothing if it is not free.
  std::optional<Hold> take(State as);

  /// Taking a free token is one exchange of this, for the sake of calls of a few bytes.
  std::atomic<State> state_ = State::kFree;
  std::atomic<std::thread::id> holder_;
  std::atomic<int> wanted_ = 0;
  std::atomic<bool> is_starved_ = false;  ///< the background thread, so it is first
  /// For those who wait for a change of state_.
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace kolo
