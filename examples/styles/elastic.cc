// horovod_style, made elastic: it goes on when ranks are lost, and takes new ones in. The lines
// that differ are marked. --batch-size is that of all ranks together, so that a step trains on the
// same digits for any number of ranks.
//
//   kolo-run -np 4 --min-np 1 --restarts 3 elastic --epochs 8   # and kill a rank meanwhile
#include "examples/styles/common.h"

#include <fmt/format.h>
#include <kolo/torch.h>

int main(int argc, char** argv) {
  return styles::run(argc, argv, "Trains on ranks that may come and go.", [&](const auto& flags) {
    kolo::init(argc, argv);
    const torch::Device device = kolo::device(flags.device);
    const styles::Data data = styles::load(flags);
    kolo::DistributedSampler sampler(data.train.count(),
                                     {.global_batch = flags.batch_size});  // elastic
    auto loader = torch::data::make_data_loader(mnist::DigitDataset(data.train), sampler,
                                                torch::data::DataLoaderOptions());

    mnist::Network network(/*with_dropout=*/true);
    network->to(device);
    kolo::DistributedOptimizer optimizer(
        torch::optim::AdamW(network->parameters(), flags.learning_rate),
        network->named_parameters(), {.weigh_by_samples = true});  // elastic

    double accuracy = 0;
    kolo::elastic::State state(  // elastic
        {.module = network.get(), .optimizer = &optimizer, .sampler = &sampler});
    kolo::elastic::run(state, [&] {                               // elastic
      for (; state.epoch() < flags.epochs; state.next_epoch()) {  // elastic
        const int epoch = static_cast<int>(state.epoch()) + 1;    // elastic
        const styles::EpochReport report(epoch, flags);
        network->train();
        double loss_sum = 0;
        std::int64_t digits = 0;
        for (auto& batch : *loader) {
          optimizer.zero_grad();
          optimizer.set_sample_count(batch.data.size(0));  // elastic
          auto loss =
              torch::nll_loss(network->forward(batch.data.to(device)), batch.target.to(device));
          loss.backward();
          optimizer.step();
          loss_sum += loss.template item<double>() * static_cast<double>(batch.data.size(0));
          digits += batch.data.size(0);
          state.commit();  // elastic
        }
        network->eval();
        const auto forward = [&](torch::Tensor images) { return network->forward(images); };
        const auto mine = styles::answer(forward, data.test, device, kolo::rank(), kolo::size());
        const auto all = kolo::allreduce(
            torch::tensor({loss_sum, static_cast<double>(digits), static_cast<double>(mine.right),
                           static_cast<double>(mine.count)},
                          torch::kFloat64),
            {.op = kolo::ReduceOp::kSum});
        accuracy = (all[2] / all[3]).template item<double>();
        // If the epoch was taken up in the middle, the loss is that of its rest.
        if (kolo::rank() == 0)
          report.print((all[0] / all[1]).template item<double>(), accuracy, data.train.count());
      }
    });
    if (kolo::rank() == 0) fmt::print("Accuracy: {:.2f} %\n", 100 * accuracy);
  });
}
