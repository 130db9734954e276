// single_device, made data-parallel in PyTorch's manner: the module is wrapped, and its gradients
// are averages when backward returns. The lines that differ are marked.
#include "examples/styles/common.h"

#include <fmt/format.h>
#include <kolo/torch.h>

int main(int argc, char** argv) {
  return styles::run(argc, argv, "Trains with DistributedDataParallel.", [&](const auto& flags) {
    kolo::init(argc, argv);                                   // kolo
    const torch::Device device = kolo::device(flags.device);  // kolo
    const styles::Data data = styles::load(flags);
    kolo::DistributedSampler sampler(data.train.count());  // kolo
    auto loader = torch::data::make_data_loader(mnist::DigitDataset(data.train), sampler,
                                                torch::data::DataLoaderOptions(flags.batch_size));

    mnist::Network network(/*with_dropout=*/true);
    network->to(device);
    kolo::DistributedDataParallel ddp(network);  // kolo
    torch::optim::AdamW optimizer(network->parameters(), flags.learning_rate);

    double accuracy = 0;
    for (int epoch = 1; epoch <= flags.epochs; ++epoch) {
      const styles::EpochReport report(epoch, flags);
      sampler.set_epoch(static_cast<std::size_t>(epoch));  // kolo
      network->train();
      double loss_sum = 0;
      std::int64_t steps = 0;
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        auto loss = torch::nll_loss(ddp.forward(batch.data.to(device)),  // kolo
                                    batch.target.to(device));
        loss.backward();
        optimizer.step();
        loss_sum += loss.template item<double>();
        ++steps;
      }
      network->eval();
      const auto forward = [&](torch::Tensor images) { return network->forward(images); };
      const auto mine = styles::answer(forward, data.test, device, kolo::rank(), kolo::size());
      const auto all = kolo::allreduce(torch::tensor(  // kolo
          {loss_sum / static_cast<double>(steps) / kolo::size(), static_cast<double>(mine.right),
           static_cast<double>(mine.count)},
          torch::kFloat64));
      accuracy = (all[1] / all[2]).template item<double>();  // kolo
      if (kolo::rank() == 0)                                 // kolo
        report.print(all[0].template item<double>(), accuracy, data.train.count());
    }
    if (kolo::rank() == 0) fmt::print("Accuracy: {:.2f} %\n", 100 * accuracy);
  });
}
