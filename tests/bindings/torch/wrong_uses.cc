// Uses that must not compile, each with a sentence that says why: tests/torch.cmake looks for the
// sentences.
#include <kolo/torch.h>

#include <utility>

struct Network : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return input; }
};

void a_module_by_value(Network& network) { kolo::DistributedDataParallel ddp(network); }

void a_base_class(torch::optim::Optimizer& optimizer, torch::nn::Linear& network) {
  kolo::DistributedOptimizer distributed(std::move(optimizer), network->named_parameters());
}

double a_number(kolo::Accelerator& accelerator) { return accelerator.gather(1.0); }

void a_moved_optimizer(kolo::Accelerator& accelerator, torch::optim::SGD& sgd,
                       torch::optim::StepLR& rate) {
  accelerator.prepare(std::move(sgd), rate);
}
