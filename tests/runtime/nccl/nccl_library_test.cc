// Opening NCCL: a build and a machine either have it, or report what is missing.
#include "runtime/nccl/nccl_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo {
namespace {

TEST(NcclLibrary, IsThereOrSaysWhatWasLookedFor) {
  const auto nccl = open_nccl();
  if (nccl.ok()) {
    EXPECT_GE((*nccl)->version(), 21400);
    EXPECT_NE((*nccl)->error_string(NcclResult::kInvalidUsage), "");
    return;
  }
  EXPECT_EQ(nccl.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(nccl.error().message, testing::AnyOf(testing::HasSubstr("libnccl.so.2"),
                                                   testing::HasSubstr("-DKOLO_WITH_NCCL=ON")));
  EXPECT_THAT(nccl.error().message, testing::HasSubstr("KOLO_OPERATIONS=kolo"));
}

}  // namespace
}  // namespace kolo
