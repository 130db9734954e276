// Wrappers that are static objects of a program: they are destroyed after main(), and after the
// objects that kolo and LibTorch have made since. With `shutdown`, the job ends before.
#include <kolo/torch.h>

#include <memory>
#include <string_view>

namespace {

struct Trainer {
  torch::nn::Linear wrapped{3, 1}, plain{3, 1}, sharded{3, 1};
  kolo::DistributedDataParallel<torch::nn::Linear> ddp{wrapped};
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer{
      torch::optim::SGD(plain->parameters(), 0.1), plain->named_parameters()};
  kolo::ShardedOptimizer<torch::optim::SGD> shards{torch::optim::SGD(sharded->parameters(), 0.1),
                                                   sharded->named_parameters()};
};
std::unique_ptr<Trainer> trainer;

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  kolo::init(argc, argv);
  trainer = std::make_unique<Trainer>();
  const torch::Tensor input = torch::ones({2, 3});
  trainer->ddp.forward(input).sum().backward();
  trainer->plain->forward(input).sum().backward();
  trainer->optimizer.step();
  trainer->sharded->forward(input).sum().backward();
  trainer->shards.step();
  if (argc > 1 && std::string_view(argv[1]) == "shutdown") kolo::shutdown();
}
