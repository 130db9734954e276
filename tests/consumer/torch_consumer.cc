// A user's program on the installed kolo::torch, alone: a world of one.
#include <kolo/torch.h>

#include <cstdio>

int main(int argc, char** argv) {
  kolo::init(argc, argv);
  const torch::Tensor tensor = torch::arange(6, torch::kFloat32).reshape({2, 3});
  const torch::Tensor sum = kolo::allreduce(tensor.t(), {.name = "tensor"});
  std::printf("rank %d of %d on %s\n", kolo::rank(), kolo::size(), kolo::device().str().c_str());
  kolo::shutdown();
  return torch::equal(sum, tensor.t()) ? 0 : 1;
}
