// The least that a data-parallel trainer needs: one linear layer on random numbers, with
// DistributedDataParallel. Start: mpirun -np 2 minimal_ddp
#include <kolo/torch.h>

#include <iostream>

/// 128 random samples, the same on every rank.
class Samples : public torch::data::datasets::Dataset<Samples> {
 public:
  Samples() {
    torch::manual_seed(7);
    inputs_ = torch::randn({128, 10});
    targets_ = torch::randn({128, 10});
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {inputs_[i], targets_[i]};
  }
  std::optional<std::size_t> size() const override { return 128; }

 private:
  torch::Tensor inputs_, targets_;
};

int main(int argc, char** argv) {
  kolo::init(argc, argv);
  const torch::Device device = kolo::device();
  std::cout << "rank " << kolo::rank() << " of " << kolo::size() << ", local rank "
            << kolo::local_rank() << ", device " << device << std::endl;

  kolo::DistributedSampler sampler(128);
  auto loader = torch::data::make_data_loader(Samples().map(torch::data::transforms::Stack<>()),
                                              sampler, torch::data::DataLoaderOptions(16));
  torch::nn::Linear model(10, 10);
  model->to(device);
  kolo::DistributedDataParallel ddp(model);
  torch::optim::SGD optimizer(ddp.parameters(), 0.05);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(ddp.forward(batch.data.to(device)), batch.target.to(device)).backward();
      optimizer.step();
    }
  }
  if (kolo::rank() == 0) std::cout << "DONE" << std::endl;
}
