// Calls of kolo's own API beside those of c10d, and calls that are refused on all ranks.
#include "tests/bindings/c10d/stress/caller.h"

#include <fmt/format.h>

#include <memory>

namespace kolo::test {

using torch::Tensor;

void Caller::begin_ordered(Begun& begun) {
  Call& call = begun.call;
  Part& part = call.parts.front();
  part.type = torch::kInt32;
  const std::int64_t count = part.count();
  const std::int64_t whole = size_ * count;
  const Part parts{.type = part.type, .sizes = {whole}};
  const auto mine = [&](std::int64_t elements) { return values_of(call, 0, rank_, elements); };
  Tensors all;
  Tensors to_me;
  for (int r = 0; r < size_; ++r) {
    all.push_back(values_of(call, 0, r, count));
    to_me.push_back(values_of(call, 0, r, whole).narrow(0, rank_ * count, count));
  }
  const auto input = [&](const Part& of) {
    return add_input(begun, of, mine(of.count()), Form::kContiguous).const_data_ptr();
  };
  const auto output = [&](const Part& of, const Tensor& values) {
    return add_output(begun, of, values, Form::kContiguous).mutable_data_ptr();
  };
  const Tensor sum = reduced_values(call, 0, size_, whole);
  constexpr DataType kType = DataType::kInt32;
  const auto root = static_cast<std::size_t>(call.root);
  switch (call.way % 8) {
    case 0:
      return allreduce_ordered(input(part), output(part, sum.narrow(0, 0, count)), count, kType,
                               ReduceOp::kSum, set_);
    case 1: {
      void* const memory =
          add(begun, part, mine(count), all[root], Form::kContiguous).mutable_data_ptr();
      return broadcast_ordered(memory, count, kType, ranks_[root], set_);
    }
    case 2:
      return allgather_ordered(input(part), output(parts, torch::cat(all)), count, kType, set_);
    case 3:
      return alltoall_ordered(input(parts), output(parts, torch::cat(to_me)), count, kType, set_);
    case 4:
      return reducescatter_ordered(input(parts), output(part, sum.narrow(0, rank_ * count, count)),
                                   count, kType, ReduceOp::kSum, set_);
    case 5:
      return gather_ordered(input(part), is_root(call) ? output(parts, torch::cat(all)) : nullptr,
                            count, kType, ranks_[root], set_);
    case 6: {
      const Tensor from_root = values_of(call, 0, call.root, whole);
      return scatter_ordered(is_root(call) ? input(parts) : nullptr,
                             output(part, from_root.narrow(0, rank_ * count, count)), count, kType,
                             ranks_[root], set_);
    }
    default:
      return barrier_ordered(set_);
  }
}

void Caller::begin_named(Begun& begun) {
  Call& call = begun.call;
  Part& part = call.parts.front();
  part.type = torch::kFloat32;
  const std::int64_t count = part.count();
  const Tensor mine = values_of(call, 0, rank_, count);
  // This thread's calls have the same order on all ranks, so they may be unnamed.
  const std::string name = call.way % 2 == 0 ? "" : fmt::format("{}/{}", names_, call.salt);
  if (call.way / 2 % 3 == 0) {
    void* const memory =
        add(begun, part, mine, reduced_values(call, 0, size_, count), Form::kContiguous)
            .mutable_data_ptr();
    begun.named = {allreduce_async(memory, memory, {count}, DataType::kFloat32,
                                   {.name = name, .process_set = set_})};
  } else if (call.way / 2 % 3 == 1) {
    const Tensor from_root = values_of(call, 0, call.root, count);
    void* const memory = add(begun, part, mine, from_root, Form::kContiguous).mutable_data_ptr();
    begun.named = {broadcast_async(memory, {count}, DataType::kFloat32,
                                   ranks_[static_cast<std::size_t>(call.root)],
                                   {.name = name, .process_set = set_})};
  } else {
    begun.named = {barrier_async({.name = name, .process_set = set_})};
  }
}

/// Each throws on every rank and leaves its arguments as they are.
std::vector<std::function<void()>> Caller::refused_calls(Begun& begun) {
  Call& call = begun.call;
  const auto given = [this, &begun](std::int64_t elements, torch::ScalarType type) {
    begun.call.parts.push_back({.type = type, .sizes = {elements}});
    const std::size_t last = begun.call.parts.size() - 1;
    return add_input(begun, begun.call.parts[last], values_of(begun.call, last, rank_, elements));
  };
  const auto with = [](Op op) {
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp.op_ = op;
    if (op == Op::PREMUL_SUM)
      options.reduceOp.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(2.0);
    return options;
  };
  const auto reduce_all = [=, this](Op op, const std::vector<torch::ScalarType>& types) {
    Tensors tensors;
    for (const auto type : types) tensors.push_back(given(20, type));
    group()->allreduce_coalesced(tensors, with(op));
  };
  const auto scatter_all = [=, this](Op op, const std::vector<torch::ScalarType>& types) {
    Tensors outputs;
    Tensors inputs;
    for (const auto type : types) {
      outputs.push_back(given(3, type));
      inputs.push_back(given(3 * size_, type));
    }
    group()->reduce_scatter_tensor_coalesced(outputs, inputs, {.reduceOp = c10d::ReduceOp(op)});
  };
  const auto one = [=](std::int64_t elements = 5) {
    return Tensors{given(elements, torch::kFloat32)};
  };
  const int nobody = call.way % 2 == 0 ? size_ : -1;
  return {
      [=, this] {
        Tensors two{given(3, torch::kFloat32), given(3, torch::kFloat32)};
        group()->allreduce(two);
      },
      [=, this] {
        Tensors none(1);
        group()->broadcast(none);
      },
      [=] { reduce_all(Op::BXOR, {torch::kFloat32}); },
      [=] { reduce_all(Op::AVG, {torch::kBool}); },
      [=] {
        reduce_all(Op::PREMUL_SUM, {torch::kFloat32, torch::kInt32});
      },
      [=] {
        reduce_all(Op::AVG, {torch::kFloat64, torch::kBool});
      },
      [=] {
        reduce_all(Op::MIN, {torch::kInt32, torch::kComplexFloat});
      },
      [=] {
        scatter_all(Op::MAX, {torch::kFloat32, torch::kComplexDouble});
      },
      [=] {
        scatter_all(Op::BOR, {torch::kBool, torch::kFloat32});
      },
      [=, this] {
        Tensors tensors = one();
        group()->broadcast(tensors, {.rootRank = nobody});
      },
      [=, this] {
        Tensors tensors = one();
        group()->reduce(tensors, {.rootRank = nobody});
      },
      [=, this] {
        Tensor input = given(4, torch::kFloat32);
        Tensor output = given(4 * size_ + 1, torch::kFloat32);
        group()->_allgather_base(output, input);
      },
      [=, this] {
        Tensor input = given(4, torch::kFloat32);
        Tensor output = given(4 * size_, torch::kFloat64);
        group()->_allgather_base(output, input);
      },
      [=, this] {
        Tensors tensors{given(1, torch::kFloat32).detach().view({1, 1}).expand({1, 6})};
        group()->broadcast(tensors);
      },
      [=, this] {
        Tensors tensors = one();
        group()->send(tensors, 0, -1);
      },
      [=, this] {
        Tensors tensors = one();
        group()->recv(tensors, nobody, 1);
      },
      [=, this] {
        Tensor input = given(size_ * 2, torch::kFloat32);
        Tensor output = given(size_ * 2, torch::kFloat32);
        Sizes none;
        Sizes splits(static_cast<std::size_t>(size_), 3);
        group()->alltoall_base(output, input, none, splits);
      },
      [=, this] {
        std::vector<Tensors> lists{Tensors(static_cast<std::size_t>(size_) + 1, one()[0])};
        Tensors inputs = one();
        group()->allgather(lists, inputs);
      },
      [=, this] {
        Tensors outputs;
        for (int r = 0; r < size_; ++r) outputs.push_back(one()[0]);
        Tensors inputs = one();
        inputs.resize(static_cast<std::size_t>(size_) + 1, inputs[0]);
        group()->alltoall(outputs, inputs);
      },
      [=, this] {
        Tensors tensors = one();
        tensors.push_back(tensors[0]);
        group()->recvAnysource(tensors, 0);
      },
      [=, this] {
        Tensors tensors{torch::zeros({2}, torch::kUInt16)};
        group()->allreduce(tensors);
      },
      [=, this] { broadcast_ordered(nullptr, 4, DataType::kInt32, ranks_[0], set_); },
  };
}

void Caller::call_refused(Begun& begun) {
  begun.call.parts.clear();
  const auto calls = refused_calls(begun);
  const std::size_t way = static_cast<std::size_t>(begun.call.way) % calls.size();
  try {
    calls[way]();
  } catch (const Wrong&) {
    throw;
  } catch (const std::exception&) {
    return;
  }
  throw Wrong(fmt::format("{}: refused call {} did not fail", begun.call.text(), way));
}

}  // namespace kolo::test
