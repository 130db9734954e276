// A user's program on the installed kolo::kolo; it runs alone, as a world of one.
#include <kolo/kolo.h>

#include <array>
#include <cstdio>

int main(int argc, char** argv) {
  kolo::init(argc, argv);
  std::printf("rank %d of %d, kolo %s\n", kolo::rank(), kolo::size(), kolo::version().c_str());
  std::array<float, 3> values = {1, 2, 3};
  kolo::allreduce(values.data(), values.data(), {3}, kolo::DataType::kFloat32,
                  {.name = "values", .postscale = 2.0});
  kolo::shutdown();
  return values == std::array<float, 3>{2, 4, 6} ? 0 : 1;
}
