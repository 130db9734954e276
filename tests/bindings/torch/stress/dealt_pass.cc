// Passes over existing loaders, whose batches an Accelerator deals out. The training loop's thread.
#include "tests/bindings/torch/stress/differs.h"
#include "tests/bindings/torch/stress/prepared_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace kolo::test {

/// Batches come in the data set's order, unless it is random.
template <class L>
void PreparedProgram::deal_out(L loader, std::size_t count, std::size_t batch, bool is_random,
                               bool accumulates) {
  const std::size_t batches = (count + batch - 1) / batch;
  const auto size = static_cast<std::size_t>(context_.size);
  const auto passes = 1 + dice_.below(2);
  for (int pass = 0; pass < passes; ++pass) {
    const std::size_t steps = (batches + size - 1) / size;
    const bool is_left = steps > 0 && dice_.one_in(3);
    const auto stop =
        is_left ? static_cast<std::size_t>(1 + dice_.below(static_cast<std::int64_t>(steps)))
                : steps;
    torch::manual_seed(static_cast<std::uint64_t>(context_.rank));
    auto at = loader.begin();
    const torch::Tensor next = torch::rand(3);
    torch::manual_seed(static_cast<std::uint64_t>(context_.rank));
    static_cast<void>(torch::randint(1 << 24, {1}, torch::kInt64));
    if (!torch::equal(next, torch::rand(3)))
      throw Differs("the generator is not as after one draw");
    Ids first;
    Ids seen;
    for (std::size_t s = 0; s < stop; ++s) {
      if (s > 0) ++at;
      if (at == loader.end()) throw Differs(fmt::format("step {} of {} is missing", s + 1, steps));
      const Batch mine = *at;
      Rows rows;
      if (is_random)
        for (const torch::Tensor& its : allgather_object(mine.target))
          rows.ids.push_back(ids_of(its));
      for (std::size_t rank = 0; rank < size; ++rank) {
        const std::size_t number = s * size + rank;
        const std::size_t begin = number < batches ? number * batch : 0;
        Ids ids(std::min(batch, count - begin));
        std::iota(ids.begin(), ids.end(), static_cast<std::int64_t>(begin));
        if (!is_random) rows.ids.push_back(ids);
        if (number == 0) first = rows.ids[0];
        const Ids& its = rows.ids[rank];
        if (its.size() != ids.size() || (number >= batches && its != first))
          throw Differs(fmt::format("rank {} has {} in step {}", rank, text_of(its), s + 1));
        rows.padding.push_back(number < batches ? 0 : std::ssize(its));
        if (number < batches) seen.insert(seen.end(), its.begin(), its.end());
      }
      const Ids& right = rows.ids[static_cast<std::size_t>(context_.rank)];
      if (const Ids got = ids_of(mine.target); got != right)
        throw Differs(
            fmt::format("dealt batch {} is {} instead of {}", s + 1, text_of(got), text_of(right)));
      if (accumulates) accumulate(s + 1 == steps);
      gather(mine, rows);
      if (dice_.one_in(3)) gather_scalar(mine, rows);
      if (dice_.one_in(3)) gather_several(mine, rows);
    }
    if (is_left) continue;
    if (stop > 0) ++at;
    if (!(at == loader.end())) throw Differs("a dealt batch came behind the last one");
    std::sort(seen.begin(), seen.end());
    Ids all(count);
    std::iota(all.begin(), all.end(), 0);
    if (seen != all) throw Differs(fmt::format("a pass has dealt out {}", text_of(seen)));
  }
}

void PreparedProgram::dealt_pass(bool accumulates) {
  const auto count = static_cast<std::size_t>(dice_.below(30));
  const auto batch = static_cast<std::size_t>(1 + dice_.below(5));
  const auto kind = dice_.below(6);
  const auto workers = static_cast<std::size_t>(dice_.below(3));
  const Numbers numbers(count);
  const auto options = torch::data::DataLoaderOptions(batch).workers(workers);
  context_.note(fmt::format("dealing out {} in batches of {}, kind {}, {} workers", count, batch,
                            kind, workers));
  if (kind == 0) {
    std::vector<Batch> batches;
    for (std::size_t begin = 0; begin < count; begin += batch) {
      std::vector<std::size_t> ids(std::min(batch, count - begin));
      std::iota(ids.begin(), ids.end(), begin);
      batches.push_back(Numbers(count).get_batch(ids));
    }
    return deal_out(accelerator_.prepare(batches), count, batch, false, accumulates);
  }
  const auto stock = [&](auto sampler) {
    return accelerator_.prepare(torch::data::make_data_loader(numbers, sampler, options));
  };
  const auto own = [&](auto sampler) {
    return accelerator_.prepare(
        data_loader(numbers, sampler, {.batch_size = batch, .workers = workers}));
  };
  if (kind < 3)
    return deal_out(stock(torch::data::samplers::SequentialSampler(count)), count, batch, false,
                    accumulates);
  if (kind < 4)
    return deal_out(stock(torch::data::samplers::RandomSampler(static_cast<std::int64_t>(count))),
                    count, batch, true, accumulates);
  if (kind < 5)
    return deal_out(own(torch::data::samplers::SequentialSampler(count)), count, batch, false,
                    accumulates);
  deal_out(own(torch::data::samplers::RandomSampler(static_cast<std::int64_t>(count))), count,
           batch, true, accumulates);
}

}  // namespace kolo::test
