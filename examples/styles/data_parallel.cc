// single_device on several devices of one process: each device has a replica of the network, and
// the replicas compute parts of each batch at the same time. The lines that differ are marked.
#include "examples/styles/common.h"

#include <fmt/format.h>
#include <kolo/torch.h>

int main(int argc, char** argv) {
  const auto train = [](const styles::Flags& flags) {
    const torch::Device device = flags.devices.front();
    const styles::Data data = styles::load(flags);
    torch::data::samplers::RandomSampler sampler(static_cast<std::int64_t>(data.train.count()));
    auto loader = torch::data::make_data_loader(mnist::DigitDataset(data.train), sampler,
                                                torch::data::DataLoaderOptions(flags.batch_size));

    mnist::Network network(/*with_dropout=*/true);
    network->to(device);
    kolo::DataParallel model(network, {.device_ids = flags.devices});  // kolo
    torch::optim::AdamW optimizer(network->parameters(), flags.learning_rate);

    double accuracy = 0;
    for (int epoch = 1; epoch <= flags.epochs; ++epoch) {
      const styles::EpochReport report(epoch, flags);
      network->train();
      double loss_sum = 0;
      std::int64_t steps = 0;
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        auto loss = torch::nll_loss(model.forward(batch.data),  // kolo
                                    batch.target.to(device));
        loss.backward();
        optimizer.step();
        loss_sum += loss.item<double>();
        ++steps;
      }
      network->eval();
      const auto forward = [&](torch::Tensor images) { return network->forward(images); };
      const auto mine = styles::answer(forward, data.test, device, 0, 1);
      accuracy = static_cast<double>(mine.right) / static_cast<double>(mine.count);
      report.print(loss_sum / static_cast<double>(steps), accuracy, data.train.count());
    }
    fmt::print("Accuracy: {:.2f} %\n", 100 * accuracy);
  };
  return styles::run(argc, argv, "Trains with DataParallel: one process, several devices.", train,
                     {.devices = true, .device = false, .ranks = false});
}
