// single_device with the network's layers on two devices of each process, and data-parallel over
// the processes. The lines that differ are marked.
#include "examples/styles/common.h"

#include <fmt/format.h>
#include <kolo/torch.h>

#include <stdexcept>

namespace {

/// mnist::Network with its convolutions on the first device and the rest on the second.
class SplitNetworkImpl : public torch::nn::Module {  // kolo
 public:
  SplitNetworkImpl(torch::Device first, torch::Device second) : first_(first), second_(second) {
    conv1_->to(first);
    conv2_->to(first);
    fc1_->to(second);
    fc2_->to(second);
  }

  torch::Tensor forward(torch::Tensor images) {
    torch::Tensor x = torch::relu(conv1_->forward(images.to(first_)));
    x = torch::relu(conv2_->forward(x));
    x = torch::dropout(torch::max_pool2d(x, 2), 0.25, is_training()).to(second_);
    x = torch::relu(fc1_->forward(x.flatten(1)));
    x = torch::dropout(x, 0.5, is_training());
    return torch::log_softmax(fc2_->forward(x), 1);
  }

 private:
  torch::Device first_;
  torch::Device second_;
  torch::nn::Conv2d conv1_{register_module("conv1", torch::nn::Conv2d(1, 32, 3))};
  torch::nn::Conv2d conv2_{register_module("conv2", torch::nn::Conv2d(32, 64, 3))};
  torch::nn::Linear fc1_{register_module("fc1", torch::nn::Linear(9216, 128))};
  torch::nn::Linear fc2_{register_module("fc2", torch::nn::Linear(128, 10))};
};
TORCH_MODULE(SplitNetwork);

}  // namespace

int main(int argc, char** argv) {
  const auto train = [&](const styles::Flags& flags) {
    kolo::init(argc, argv);  // kolo
    if (flags.devices.size() != 2) throw std::invalid_argument("--devices takes two: first,second");
    // kolo: "cuda" is this rank's GPU
    const auto own = [](torch::Device named) {
      return named.is_cuda() && !named.has_index() ? kolo::device("cuda") : named;
    };
    const torch::Device device = own(flags.devices.back());  // kolo: where forward's result is
    const styles::Data data = styles::load(flags);
    kolo::DistributedSampler sampler(data.train.count());  // kolo
    auto loader = torch::data::make_data_loader(mnist::DigitDataset(data.train), sampler,
                                                torch::data::DataLoaderOptions(flags.batch_size));

    SplitNetwork network(own(flags.devices.front()), device);  // kolo
    kolo::DistributedDataParallel ddp(network);                // kolo
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
        auto loss = torch::nll_loss(ddp.forward(batch.data),  // kolo
                                    batch.target.to(device));
        loss.backward();
        optimizer.step();
        loss_sum += loss.item<double>();
        ++steps;
      }
      network->eval();
      const auto forward = [&](torch::Tensor images) { return network->forward(images); };
      const auto mine = styles::answer(forward, data.test, device, kolo::rank(), kolo::size());
      const auto all = kolo::allreduce(torch::tensor(  // kolo
          {loss_sum / static_cast<double>(steps) / kolo::size(), static_cast<double>(mine.right),
           static_cast<double>(mine.count)},
          torch::kFloat64));
      accuracy = (all[1] / all[2]).item<double>();  // kolo
      if (kolo::rank() == 0)                        // kolo
        report.print(all[0].item<double>(), accuracy, data.train.count());
    }
    if (kolo::rank() == 0) fmt::print("Accuracy: {:.2f} %\n", 100 * accuracy);
  };
  return styles::run(argc, argv, "Trains with layers on two devices and DistributedDataParallel.",
                     train, {.devices = true, .device = false});
}
