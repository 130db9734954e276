// ProgressToken: its holder is the one thread that drives transport, controller and executors. The
// background thread holds the token while no other thread wants it. A thread that waits for its own
// operation takes precedence. (After the progress locks of MPI libraries, with precedence added.)
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
  /// Whoever owns a Hold holds the token. Destruction releases it.
  class Hold {
   public:
    Hold(Hold&& other) noexcept
        : token_(std::exchange(other.token_, nullptr)), quietly_(other.quietly_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (token_ != nullptr) token_->release(quietly_);
    }

    /// Releases the token without waking the background thread, because nothing is left to drive.
    /// The background thread looks again within kPatience anyway. This keeps it from disturbing a
    /// thread that takes the token again and again.
    void release_quietly() { quietly_ = true; }

   private:
    friend class ProgressToken;
    explicit Hold(ProgressToken& token) : token_(&token) {}
    ProgressToken* token_;
    bool quietly_ = false;
  };

  static constexpr std::chrono::milliseconds kPatience{2};
  /// After this time the background thread takes precedence. It must serve heartbeats and deadlines
  /// even if other threads take the token without a pause.
  static constexpr std::chrono::milliseconds kLongest{100};

  /// For the background thread: waits until the token is free and no other thread wants it. After
  /// kLongest it waits only until the token is free. Nothing after close().
  std::optional<Hold> acquire_background();

  /// For a thread that waits for its operation: takes the token over from the background thread.
  /// Nothing if another such thread holds it (and drives for both), and nothing after `until` or
  /// close().
  std::optional<Hold> acquire_for_waiter(std::chrono::steady_clock::time_point until);

  /// For a thread that does not wait: nothing unless the token is free and nobody is owed it.
  std::optional<Hold> try_acquire();

  /// For any thread: waits until the token is free. Nothing after `until` or close().
  std::optional<Hold> acquire(
      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

  /// Whether a thread waits for the token. The background thread then releases it.
  bool wanted() const noexcept { return wanted_.load(std::memory_order_acquire) > 0; }

  /// For the holder: no thread gets the token any more, not even after the holder releases it.
  void close();

  bool is_closed() const noexcept { return state_.load() == State::kClosed; }

  /// Stops the process unless the calling thread holds the token.
  void assert_held() const;

 private:
  /// The kind of holder. kClosed is final, even while the last holder still has the token.
  enum class State : std::uint8_t { kFree, kBackground, kOther, kClosed };

  void release(bool quietly);
  /// Nothing if the token is not free.
  std::optional<Hold> take(State as);

  /// Taking a free token is one atomic exchange of this, which keeps calls of a few bytes fast.
  std::atomic<State> state_ = State::kFree;
  std::atomic<std::thread::id> holder_;
  std::atomic<int> wanted_ = 0;
  std::atomic<bool> is_starved_ = false;  ///< the background thread takes precedence
  /// For threads that wait for a change of state_.
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace kolo
