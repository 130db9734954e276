// One process, one device, stock LibTorch: the starting point of the other programs in this folder.
#include "examples/styles/common.h"

#include <fmt/format.h>

int main(int argc, char** argv) {
  return styles::run_alone(argc, argv, "Trains alone, without kolo.", [](const auto& flags) {
    const torch::Device device = styles::stock_device(flags);
    const styles::Data data = styles::load(flags);
    torch::data::samplers::RandomSampler sampler(static_cast<std::int64_t>(data.train.count()));
    auto loader = torch::data::make_data_loader(mnist::DigitDataset(data.train), sampler,
                                                torch::data::DataLoaderOptions(flags.batch_size));

    mnist::Network network(/*with_dropout=*/true);
    network->to(device);
    torch::optim::AdamW optimizer(network->parameters(), flags.learning_rate);

    double accuracy = 0;
    for (int epoch = 1; epoch <= flags.epochs; ++epoch) {
      const styles::EpochReport report(epoch, flags);
      network->train();
      double loss_sum = 0;
      std::int64_t steps = 0;
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        auto loss =
            torch::nll_loss(network->forward(batch.data.to(device)), batch.target.to(device));
        loss.backward();
        optimizer.step();
        loss_sum += loss.template item<double>();
        ++steps;
      }
      network->eval();
      const auto forward = [&](torch::Tensor images) { return network->forward(images); };
      const auto mine = styles::answer(forward, data.test, device, 0, 1);
      accuracy = static_cast<double>(mine.right) / static_cast<double>(mine.count);
      report.print(loss_sum / static_cast<double>(steps), accuracy, data.train.count());
    }
    fmt::print("Accuracy: {:.2f} %\n", 100 * accuracy);
  });
}
