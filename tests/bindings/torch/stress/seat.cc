#include "tests/bindings/torch/stress/seat.h"

#include "tests/bindings/torch/stress/differs.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

namespace kolo::test {
namespace {

template <class S>
class KoloReader : public Reader {
 public:
  KoloReader(const Numbers& numbers, const S& sampler, const LoaderPlan& plan)
      : loader_(data_loader(numbers, sampler,
                            {.batch_size = plan.batch.size,
                             .workers = plan.workers,
                             .drop_last = plan.batch.drop_last,
                             .prefetch = plan.prefetch,
                             .timeout = plan.timeout()})) {}
  Batch first() override {
    at_.reset();
    at_.emplace(loader_.begin());
    return current();
  }
  Batch next() override {
    ++*at_;
    return current();
  }
  std::optional<std::size_t> size() const override { return loader_.size(); }
  std::optional<std::size_t> pass_size() const override { return loader_.pass_size(); }

 private:
  Batch current() { return *at_ == loader_.end() ? Batch() : **at_; }

  DataLoader<Numbers, S> loader_;
  std::optional<typename DataLoader<Numbers, S>::Iterator> at_;
};

template <class S>
class StockReader : public Reader {
 public:
  StockReader(const Numbers& numbers, const S& sampler, const LoaderPlan& plan)
      : loader_(torch::data::make_data_loader(
            numbers, sampler,
            torch::data::DataLoaderOptions(plan.batch.size).drop_last(plan.batch.drop_last))) {}
  Batch first() override {
    at_.emplace(loader_->begin());
    return current();
  }
  Batch next() override {
    ++*at_;
    return current();
  }

 private:
  Batch current() { return *at_ == loader_->end() ? Batch() : **at_; }

  std::unique_ptr<torch::data::StatelessDataLoader<Numbers, S>> loader_;
  std::optional<torch::data::Iterator<torch::data::Example<>>> at_;
};

std::unique_ptr<Reader> make_reader(const Numbers& numbers, const Sampler& sampler,
                                    const LoaderPlan& plan) {
  return std::visit(
      [&]<class S>(const S& its) -> std::unique_ptr<Reader> {
        if (plan.stock) return std::make_unique<StockReader<S>>(numbers, its, plan);
        return std::make_unique<KoloReader<S>>(numbers, its, plan);
      },
      sampler);
}

}  // namespace

std::optional<std::chrono::milliseconds> LoaderPlan::timeout() const {
  if (!hurries) return {};
  return std::chrono::milliseconds(2);
}

std::string LoaderPlan::text() const {
  return fmt::format("{} batches of {}, {} workers, prefetch {}{}{}", stock ? "stock" : "kolo's",
                     batch.size, workers, prefetch, batch.drop_last ? ", drop_last" : "",
                     hurries ? ", in a hurry" : "");
}

Sampler make_sampler(const DataPlan& data, std::optional<int> rank, std::optional<int> size) {
  switch (data.kind) {
    case Kind::kTraining:
      return DistributedSampler(data.count, {.shuffle = data.shuffle,
                                             .seed = data.seed,
                                             .drop_last = data.drop_last,
                                             .global_batch = data.global_batch,
                                             .rank = rank,
                                             .size = size});
    case Kind::kEvaluation:
      return DistributedEvalSampler(
          data.count, {.shuffle = data.shuffle, .seed = data.seed, .rank = rank, .size = size});
    case Kind::kElastic:
      return ElasticSampler(
          data.count, {.shuffle = data.shuffle, .seed = data.seed, .rank = rank, .size = size});
  }
  throw Differs("no such kind");
}

std::string saved(const RankSampler& sampler) {
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

void load(RankSampler& sampler, const std::string& state) {
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size());
  sampler.load(archive);
}

Seat::Seat(const DataPlan& data, const LoaderPlan& loader, int rank, int ranks, bool is_this_rank)
    : data_(data),
      loader_(loader),
      rank_(rank),
      ranks_(ranks),
      sampler_(is_this_rank ? make_sampler(data, {}, {}) : make_sampler(data, rank, ranks)),
      numbers_(data.count),
      reader_(make_reader(numbers_, sampler_, loader)) {}

RankSampler& Seat::sampler() {
  return std::visit([](auto& its) -> RankSampler& { return its; }, sampler_);
}

void Seat::differs(const std::string& what) const {
  throw Differs(fmt::format("rank {} of {}: {}", rank_, ranks_, what));
}

template <class T>
void Seat::expect(const std::string& what, const T& value, const T& right) const {
  if (value != right) differs(fmt::format("{} is {} instead of {}", what, value, right));
}

void Seat::check(const Place& place, bool epoch_is_chosen) {
  const bool is_elastic = data_.kind == Kind::kElastic;
  expect("epoch()", sampler().epoch(), place.epoch);
  expect("epoch_is_chosen()", sampler().epoch_is_chosen(), epoch_is_chosen);
  expect("total_size()", sampler().total_size(), total_of(data_, ranks_));
  expect("num_global_batches()", sampler().num_global_batches(),
         data_.global_batch == 0
             ? 0
             : (total_of(data_, ranks_) + data_.global_batch - 1) / data_.global_batch);
  if (is_elastic) expect("remaining()", elastic().remaining(), data_.count - place.got);
}

void Seat::begin(const Place& from, const std::vector<Step>& steps) {
  from_ = from;
  steps_ = steps;
  taken_ = 0;
  is_over_ = false;
  last_ = {};
}

Reader::Batch Seat::ask() {
  const bool is_first = taken_++ == 0;
  while (true) {
    try {
      return is_first ? reader_->first() : reader_->next();
    } catch (const torch::data::WorkerException&) {
      throw;
    } catch (const c10::Error& error) {
      // It took too long, but will still come; a pass that has not begun begins again.
      if (!loader_.hurries || std::string(error.what()).find("Timeout in") == std::string::npos)
        throw;
      numbers_.make_slow(kNone);
      if (is_first) check_last("behind a first batch that took too long");
    }
  }
}

void Seat::check_pass() {
  const Place whole = data_.kind == Kind::kElastic ? from_ : Place{.epoch = from_.epoch};
  expect("num_samples()", sampler().num_samples(),
         elements_of(deal(data_, whole, ranks_, {.size = loader_.batch.size}), rank_));
  if (const auto size = reader_->size())
    expect("size()", *size, batches_of(deal(data_, whole, ranks_, loader_.batch), rank_));
  if (const auto size = reader_->pass_size())
    expect("pass_size()", *size, batches_of(steps_, rank_));
}

void Seat::check_last(const std::string& when) {
  const auto r = static_cast<std::size_t>(rank_);
  const bool any = !last_.ids.empty();
  expect("last_batch_size() " + when, sampler().last_batch_size(),
         any ? last_.ids[r].size() : std::size_t{0});
  expect("last_batch_padding() " + when, sampler().last_batch_padding(),
         any ? static_cast<std::size_t>(last_.padding[r]) : std::size_t{0});
}

std::optional<torch::Tensor> Seat::take(const Step& step, bool fails) {
  const Ids& right = step.ids[static_cast<std::size_t>(rank_)];
  if (right.empty()) {
    if (!is_over_) expect_end();
    return {};
  }
  const bool is_first = taken_ == 0;
  Reader::Batch batch;
  try {
    batch = ask();
    if (fails) differs("a batch came that cannot be read");
  } catch (const Differs&) {
    throw;
  } catch (const std::exception& error) {
    if (!fails || std::string(error.what()).find("unreadable") == std::string::npos) throw;
    numbers_.make_unreadable(kNone);
    if (!is_first) {
      last_ = step;  // it counts as delivered
      return {};
    }
    expect("epoch_is_chosen() behind a first batch that cannot be read",
           sampler().epoch_is_chosen(), true);
    check_last("behind a first batch that cannot be read");
    taken_ = 0;
    batch = ask();
  }
  if (!batch)
    differs(fmt::format("the pass is over after {} batches instead of {}", taken_ - 1,
                        batches_of(steps_, rank_)));
  if (is_first) check_pass();
  const Ids got = ids_of(batch->target);
  if (got != right)
    differs(fmt::format("batch {} is {} instead of {}", taken_, text_of(got), text_of(right)));
  if (!torch::equal(batch->data.select(1, 1), batch->target.square()))
    differs(fmt::format("batch {} has other data than targets", taken_));
  last_ = step;
  check_last("behind a batch");
  return batch->target;
}

void Seat::expect_end() {
  if (is_over_) return;
  is_over_ = true;
  if (const auto batch = ask())
    differs(fmt::format("a batch of {} came behind the last one", text_of(ids_of(batch->target))));
  if (taken_ == 1) check_pass();
  // LibTorch's loader does not tell the sampler that it has dropped a batch.
  if (!(loader_.stock && loader_.batch.drop_last)) check_last("behind the pass");
}

}  // namespace kolo::test
