// The training tools of kolo::torch, alone and under mpirun: every test runs on all ranks at once.
#include <kolo/torch.h>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  torch::set_num_threads(1);
  if (!kolo::speaks()) return 2;  // before init(), on every rank
  kolo::init(argc, argv);
  return RUN_ALL_TESTS();
}
