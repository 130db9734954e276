#include "tools/simulate/start_up.h"

#include "runtime/bootstrap/relay.h"
#include "transport/transport.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace kolo::simulate {
namespace {

/// Bytes of what a rank tells in its handshake, and of a window that it offers. An address of UCX
/// has 215 of them.
constexpr std::uint64_t kHandshake = 450;
constexpr std::uint64_t kOffer = 90;
constexpr std::uint64_t kPerValue = 6;  ///< around each of them in an answer
/// An answer where all ranks have said the same.
constexpr std::uint64_t kShort = 16;
/// Rounds in which all ranks of a circle send: see tuning/link_probe.cc.
constexpr int kCrowdRounds = 3 + 8 * 6;

/// The cores of a host. Work goes to the core that is free first.
class Cores {
 public:
  explicit Cores(int count)
      : free_(std::greater<>(), std::vector<double>(static_cast<std::size_t>(count))) {}
  /// When work that may begin at `ready` has ended.
  double run(double ready, double us) {
    const double end = std::max(free_.top(), ready) + us;
    free_.pop();
    free_.push(end);
    return end;
  }

 private:
  std::priority_queue<double, std::vector<double>, std::greater<>> free_;
};

class StartUp {
 public:
  StartUp(const Machine& machine, int cores, const StartUpCosts& costs)
      : machine_(machine),
        costs_(costs),
        cores_(cores > 0 ? cores : machine.ranks_per_host),
        hosts_(static_cast<std::size_t>(machine.hosts), Cores(cores_)),
        now_(static_cast<std::size_t>(machine.ranks())),
        below_(static_cast<std::size_t>(machine.ranks())),
        cards_(static_cast<std::size_t>(machine.hosts)) {}

  std::vector<StartUpPart> play() {
    launch();
    end_part("launch");
    answer_each(costs_.meet / 2);  // a greeting
    answer_each(costs_.meet / 2);  // a proof
    end_part("meeting");
    compute(costs_.network);
    end_part("network");
    compute(costs_.describe);
    meet_for_handshake();
    compute(costs_.decode * ranks());
    end_part("handshake");
    compute(costs_.inside * (machine_.ranks_per_host - 1));
    if (ranks() <= Transport::kFewRanks)
      compute(costs_.across * (ranks() - machine_.ranks_per_host));
    end_part("connections");
    open_windows();
    end_part("windows");
    // Whether there are devices, and two exchanges of their windows.
    for (int i = 0; i < 3; ++i) exchange(kShort, /*differs=*/false);
    end_part("devices");
    measure_links();
    end_part("links");
    choose_ways();
    end_part("ways");
    if (ranks() > Transport::kFewRanks)
      now(0) = hosts_.front().run(now(0), costs_.hear * (ranks() - 1));
    for (int i = 0; machine_.hosts > 1 && i < 3; ++i) exchange(kShort, /*differs=*/false);
    end_part("clocks");
    return parts_;
  }

 private:
  int ranks() const { return machine_.ranks(); }
  double latency_to(int rank) const {
    return machine_.host_of(rank) == 0 ? 0 : machine_.across.latency_us;
  }
  double& now(int rank) { return now_[static_cast<std::size_t>(rank)]; }
  Cores& cores_of(int rank) { return hosts_[static_cast<std::size_t>(machine_.host_of(rank))]; }

  /// The ranks in the order in which they go on.
  std::vector<int> in_order() {
    std::vector<int> order(now_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return now(a) < now(b); });
    return order;
  }

  void end_part(std::string_view name) {
    const double at = *std::max_element(now_.begin(), now_.end());
    parts_.push_back({name, at - part_began_, store_us_, sent_});
    part_began_ = at;
    store_us_ = 0;
    sent_ = 0;
  }

  void compute(double us) {
    for (const int rank : in_order()) now(rank) = cores_of(rank).run(now(rank), us);
  }

  void launch() {
    for (int rank = 0; rank < ranks(); ++rank)
      now(rank) =
          cores_of(rank).run(rank % machine_.ranks_per_host == 0 ? 0 : now(rank - 1), costs_.spawn);
    compute(costs_.process);
  }

  /// The store's thread runs on the first host.
  void work_on_store(double ready, double us) {
    store_ = hosts_.front().run(std::max(store_, ready), us);
    store_us_ += us;
  }

  /// A request of every rank. The store wakes, takes what has come, and `done(first, last)` is
  /// called for these ranks of `order`. What comes meanwhile waits until it wakes again.
  template <class Done>
  void request(double each_us, const Done& done) {
    compute(costs_.request);
    const std::vector<int> order = in_order();
    const auto arrival = [&](std::size_t i) { return now(order[i]) + latency_to(order[i]); };
    for (std::size_t next = 0; next < order.size();) {
      const double ready = std::max(store_, arrival(next));
      const std::size_t first = next;
      while (next < order.size() && arrival(next) <= ready) ++next;
      work_on_store(ready, costs_.poll * ranks() + each_us * static_cast<double>(next - first));
      done(order.data() + first, order.data() + next);
    }
  }

  /// An answer for every request at once.
  void answer_each(double each_us) {
    request(each_us, [&](const int* rank, const int* end) {
      for (; rank != end; ++rank) now(*rank) = store_ + latency_to(*rank);
    });
  }

  bool are_linked() const { return ranks() >= kRelayRanks; }

  /// The first exchange, in which ranks get their links.
  void meet_for_handshake() {
    exchange_by_store(kHandshake, /*differs=*/true);
    if (!are_linked()) return;
    for (std::vector<RelayTree> trees = {{0, ranks()}}; !trees.empty();) {
      const RelayTree tree = trees.back();
      trees.pop_back();
      auto& below = below_[static_cast<std::size_t>(tree.first)];
      below = trees_below(tree);
      trees.insert(trees.end(), below.begin(), below.end());
    }
    pass_down((kHandshake + kPerValue) * static_cast<std::uint64_t>(ranks()), costs_.link);
  }

  /// Every rank gives `bytes` bytes and gets those of all, once all have come.
  void exchange(std::uint64_t bytes, bool differs) {
    if (!are_linked()) return exchange_by_store(bytes, differs);
    compute(costs_.request);
    const auto size_of = [&](const RelayTree& tree) {
      return differs ? (bytes + kPerValue) * static_cast<std::uint64_t>(tree.end - tree.first)
                     : bytes;
    };
    // A rank has a lower number than those below it.
    for (int rank = ranks() - 1; rank >= 0; --rank) {
      for (const RelayTree& tree : below_[static_cast<std::size_t>(rank)]) {
        const double sent = carry(tree.first, rank, now(tree.first), size_of(tree));
        now(rank) = cores_of(rank).run(
            std::max(now(rank), sent),
            2 * costs_.hop + costs_.scan * (tree.end - tree.first) +
                (costs_.send + costs_.receive) * static_cast<double>(size_of(tree)));
      }
    }
    pass_down(size_of({0, ranks()}), 0);
  }

  void exchange_by_store(std::uint64_t bytes, bool differs) {
    request(costs_.serve / 2, [](const int*, const int*) {});
    const std::uint64_t answer =
        differs ? (bytes + kPerValue) * static_cast<std::uint64_t>(ranks()) : bytes;
    for (int rank = 0; rank < ranks(); ++rank) {
      const std::uint64_t sent = are_linked() && rank > 0 ? kShort : answer;
      work_on_store(store_, costs_.serve / 2 + costs_.send * static_cast<double>(sent) +
                                (are_linked() ? costs_.place : 0));
      sent_ += sent;
      now(rank) = store_;
      if (machine_.host_of(rank) != 0)
        now(rank) = sent_by_card_of(0, store_, sent) + latency_to(rank);
    }
    if (!are_linked()) take(answer);
  }

  /// Every rank reads an answer.
  void take(std::uint64_t bytes) {
    compute(costs_.scan * ranks() + costs_.receive * static_cast<double>(bytes));
  }

  /// When a host's card has sent what it gets at `ready`.
  double sent_by_card_of(int host, double ready, std::uint64_t bytes) {
    double& card = cards_[static_cast<std::size_t>(host)];
    card = std::max(card, ready) +
           static_cast<double>(bytes) * 1e-3 / machine_.across.gigabytes_per_second;
    return card;
  }

  /// When what a rank sends to another one has come.
  double carry(int from, int to, double at, std::uint64_t bytes) {
    const int host = machine_.host_of(from);
    if (machine_.host_of(to) == host) return at;
    return sent_by_card_of(host, at, bytes) + machine_.across.latency_us;
  }

  /// Each rank passes an answer on to the ranks below, one after the other: see Relay.
  void pass_down(std::uint64_t bytes, double each_us) {
    for (int rank = 0; rank < ranks(); ++rank) {
      for (const RelayTree& tree : below_[static_cast<std::size_t>(rank)]) {
        double& below = now(tree.first);
        now(rank) =
            cores_of(rank).run(std::max(now(rank), each_us > 0 ? below : 0),
                               each_us + 2 * costs_.hop + costs_.send * static_cast<double>(bytes));
        below = std::max(below, carry(rank, tree.first, now(rank), bytes));
      }
    }
    take(bytes);
  }

  void open_windows() {
    const bool shares = machine_.ranks_per_host > 1;
    if (shares) compute(costs_.window);
    exchange(shares ? kOffer : kShort, shares);
    exchange(kShort, /*differs=*/false);
    exchange(kShort, /*differs=*/false);
  }

  bool has_core_for_each_rank() const { return cores_ >= machine_.ranks_per_host; }

  /// As the first job does whose links nobody knows.
  void measure_links() {
    exchange(kShort, /*differs=*/false);
    for (const bool inside : {true, false}) {
      const int circle = inside ? machine_.ranks_per_host : machine_.hosts;
      const int circles = inside ? machine_.hosts : machine_.ranks_per_host;
      if (circle < 2) continue;
      now(0) = hosts_.front().run(now(0), costs_.pair);
      if (circles > 1) exchange(kShort, /*differs=*/false);
      const Link& link = inside ? machine_.inside : machine_.across;
      const double turn = inside ? costs_.turn_inside : costs_.turn_across;
      compute(kCrowdRounds *
              (has_core_for_each_rank() ? link.latency_us + 2 * link.overhead_us : turn));
      exchange(kShort, /*differs=*/false);
    }
  }

  void choose_ways() {
    if (machine_.hosts > 1 || !has_core_for_each_rank()) return;
    exchange(kShort, /*differs=*/false);
    compute(costs_.ways);
    for (int i = 0; i < 2; ++i) exchange(kShort, /*differs=*/false);
  }

  const Machine& machine_;
  const StartUpCosts& costs_;
  const int cores_;
  std::vector<Cores> hosts_;
  std::vector<double> now_;                    ///< by rank: when it goes on
  double store_ = 0;                           ///< when the store's thread is free
  std::vector<std::vector<RelayTree>> below_;  ///< by rank, if ranks are linked
  std::vector<double> cards_;                  ///< by host: when its card has sent all
  std::vector<StartUpPart> parts_;
  double part_began_ = 0;
  double store_us_ = 0;
  std::uint64_t sent_ = 0;
};

}  // namespace

std::vector<StartUpPart> start_up_of(const Machine& machine, int cores, const StartUpCosts& costs) {
  return StartUp(machine, cores, costs).play();
}

}  // namespace kolo::simulate
