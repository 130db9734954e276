// A user's program on the installed kolo::torch; it runs alone, as a world of one.
#include <kolo/torch.h>
#if __has_include(<kolo/c10d.h>)
#include <kolo/c10d.h>
#endif

#include <cstdio>
#include <vector>

namespace {

bool reduces_by_c10d() {
#if __has_include(<kolo/c10d.h>)
  std::vector<torch::Tensor> tensors{torch::ones({3})};
  kolo::process_group()->allreduce(tensors)->wait();
  return torch::equal(tensors[0], torch::ones({3}));
#else
  return true;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  kolo::init(argc, argv);
  const torch::Tensor tensor = torch::arange(6, torch::kFloat32).reshape({2, 3});
  const torch::Tensor sum = kolo::allreduce(tensor.t(), {.name = "tensor"});
  std::printf("rank %d of %d on %s\n", kolo::rank(), kolo::size(), kolo::device().str().c_str());
  const bool reduces = reduces_by_c10d();
  kolo::shutdown();
  return reduces && torch::equal(sum, tensor.t()) ? 0 : 1;
}
