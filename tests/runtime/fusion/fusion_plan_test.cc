#include "runtime/fusion/fusion_plan.h"

#include <gtest/gtest.h>

#include <deque>

namespace kolo {
namespace {

class FusionPlan : public testing::Test {
 protected:
  Response& add(std::int64_t elements, DataType type = DataType::kFloat32) {
    Response response;
    response.signature.type = type;
    response.signature.shape = {elements};
    response.contributors = 2;
    responses_.push_back(response);
    return responses_.back();
  }
  std::vector<FusedGroup> plan(FusionLimits limits = {400, 200}) const {
    std::vector<const Response*> pointers;
    for (const Response& response : responses_) pointers.push_back(&response);
    return plan_fusion(pointers, limits);
  }
  std::deque<Response> responses_;
};

using Groups = std::vector<FusedGroup>;

TEST_F(FusionPlan, PacksSmallTensorsUpToTheThreshold) {
  for (int i = 0; i < 5; ++i) add(40);  // 160 bytes each
  EXPECT_EQ(plan(), (Groups{{0, 1}, {2, 3}, {4}}));
}

TEST_F(FusionPlan, LeavesLargeTensorsWhereTheyLie) {
  add(10);
  add(50);  // 200 bytes
  add(10);
  EXPECT_EQ(plan(), (Groups{{0, 2}, {1}}));
}

TEST_F(FusionPlan, PacksLargerTensorsOfADevice) {
  for (const std::int64_t elements : {10, 50, 399, 400, 10})
    add(elements).signature.on_device = true;
  // 1,600 bytes, eight times the largest tensor of the host, are too many.
  EXPECT_EQ(plan({8000, 200}), (Groups{{0, 1, 2, 4}, {3}}));
}

TEST_F(FusionPlan, KeepsApartWhatCannotShare) {
  add(1);
  add(1, DataType::kFloat64);
  add(1).signature.op = ReduceOp::kAverage;
  add(1).signature.prescale = 2;
  add(1).signature.postscale = 2;
  add(1).signature.kind = OperationKind::kBroadcast;
  add(1).signature.kind = OperationKind::kBroadcast;
  add(1);
  EXPECT_EQ(plan(), (Groups{{0, 7}, {1}, {2}, {3}, {4}, {5}, {6}}));
}

TEST_F(FusionPlan, LeavesOutWhatIsNotRun) {
  add(1).error = Error{};
  add(1).contributors = 0;
  add(1);
  EXPECT_EQ(plan(), (Groups{{2}}));
}

}  // namespace
}  // namespace kolo
