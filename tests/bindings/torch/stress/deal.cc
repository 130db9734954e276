#include "tests/bindings/torch/stress/deal.h"

#include "tests/bindings/torch/stress/differs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <kolo/torch.h>

#include <algorithm>
#include <numeric>

namespace kolo::test {
namespace {

/// All elements of an epoch, by a sampler of a world of one.
template <class Sampler>
Ids all_of(Sampler sampler, std::size_t count, std::size_t epoch) {
  sampler.set_epoch(epoch);
  sampler.reset();
  const auto all = sampler.next(count + 1);
  return all ? Ids(all->begin(), all->end()) : Ids();
}

/// In a deal that leaves nothing out, each element comes once.
void check_each_once(const DataPlan& data, const std::vector<Step>& steps) {
  Ids seen;
  for (const Step& step : steps)
    for (std::size_t rank = 0; rank < step.ids.size(); ++rank)
      seen.insert(seen.end(), step.ids[rank].begin(), step.ids[rank].end() - step.padding[rank]);
  std::sort(seen.begin(), seen.end());
  Ids all(data.count);
  std::iota(all.begin(), all.end(), 0);
  if (seen != all) throw Differs("the model does not deal out each element once");
}

}  // namespace

std::string DataPlan::text() const {
  constexpr const char* kKinds[] = {"DistributedSampler", "DistributedEvalSampler",
                                    "ElasticSampler"};
  return fmt::format("{} of {}{}{}{}, seed {}", kKinds[static_cast<int>(kind)], count,
                     shuffle ? ", shuffled" : "", drop_last ? ", drop_last" : "",
                     global_batch > 0 ? fmt::format(", global_batch {}", global_batch) : "", seed);
}

std::string Place::text() const {
  return fmt::format("epoch {}, {} got{}", epoch, got, ended ? ", ended" : "");
}

std::size_t Step::rows() const {
  std::size_t sum = 0;
  for (std::size_t rank = 0; rank < ids.size(); ++rank)
    sum += ids[rank].size() - static_cast<std::size_t>(padding[rank]);
  return sum;
}

Ids order_of(const DataPlan& data, std::size_t epoch) {
  Ids order;
  switch (data.kind) {
    case Kind::kTraining:
      order = all_of(
          DistributedSampler(data.count,
                             {.shuffle = data.shuffle, .seed = data.seed, .rank = 0, .size = 1}),
          data.count, epoch);
      break;
    case Kind::kEvaluation:
      order = all_of(
          DistributedEvalSampler(
              data.count, {.shuffle = data.shuffle, .seed = data.seed, .rank = 0, .size = 1}),
          data.count, epoch);
      break;
    case Kind::kElastic:
      order =
          all_of(ElasticSampler(data.count,
                                {.shuffle = data.shuffle, .seed = data.seed, .rank = 0, .size = 1}),
                 data.count, epoch);
      break;
  }
  Ids sorted = order;
  if (data.shuffle) std::sort(sorted.begin(), sorted.end());
  Ids all(data.count);
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all)
    throw Differs(fmt::format("{}: alone, epoch {} is {}", data.text(), epoch, text_of(order)));
  return order;
}

std::size_t total_of(const DataPlan& data, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  const std::size_t unit = data.global_batch > 0 ? data.global_batch : size;
  if (data.drop_last) return data.count / unit * unit;
  const bool pads = data.kind == Kind::kTraining && data.global_batch == 0;
  return pads ? (data.count + size - 1) / size * size : data.count;
}

Place resumed(const DataPlan& data, const Place& place, int ranks) {
  Place from = place;
  const std::size_t total = total_of(data, ranks);
  // Without a global batch, shares continue together: fewer elements than ranks are dealt twice.
  if (data.global_batch == 0 && data.kind != Kind::kElastic)
    from.got -= from.got % static_cast<std::size_t>(ranks);
  from.ended = (place.ended || from.got >= total) && total > 0;
  if (from.ended || total == 0) from.got = total;
  return from;
}

std::vector<Step> deal(const DataPlan& data, const Place& from, int ranks, const BatchPlan& batch) {
  const auto size = static_cast<std::size_t>(ranks);
  const Ids order = order_of(data, from.epoch);
  const std::size_t total = total_of(data, ranks);
  const std::size_t width = data.global_batch > 0 ? data.global_batch : batch.size * size;
  std::vector<Step> steps;
  for (std::size_t at = from.ended ? total : from.got; at < total; at += width) {
    Step step{.ids = std::vector<Ids>(size), .padding = std::vector<std::int64_t>(size, 0)};
    const std::size_t end = std::min(at + width, total);
    for (std::size_t i = at; i < end; ++i) {
      const std::size_t rank = (i - at) % size;
      step.ids[rank].push_back(order[i % data.count]);
      if (i >= data.count) ++step.padding[rank];
    }
    step.after = {.epoch = from.epoch, .got = end, .ended = end == total};
    bool any = false;
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (batch.drop_last && step.ids[rank].size() < batch.size) {
        step.ids[rank].clear();
        step.padding[rank] = 0;
      }
      any = any || !step.ids[rank].empty();
    }
    if (any) steps.push_back(std::move(step));
  }
  if (from.got == 0 && !from.ended && !data.drop_last && !batch.drop_last)
    check_each_once(data, steps);
  return steps;
}

std::size_t elements_of(const std::vector<Step>& steps, int rank) {
  std::size_t sum = 0;
  for (const Step& step : steps) sum += step.ids[static_cast<std::size_t>(rank)].size();
  return sum;
}

std::size_t batches_of(const std::vector<Step>& steps, int rank) {
  return static_cast<std::size_t>(std::count_if(
      steps.begin(), steps.end(),
      [rank](const Step& step) { return !step.ids[static_cast<std::size_t>(rank)].empty(); }));
}

std::string text_of(const Ids& ids) { return fmt::format("[{}]", fmt::join(ids, " ")); }

}  // namespace kolo::test
