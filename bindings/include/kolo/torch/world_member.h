// WorldMember: an object that the ranks of a world have agreed on. elastic::run() takes it to the
// next world. The optimizers of kolo and DistributedDataParallel are such. Used by the training
// loop's thread.
#pragma once

#include <kolo/export.h>

namespace kolo {

/// Between the two calls kolo is not initialised, and then again, with other ranks:
///
///   kolo::shutdown();
///   optimizer.leave_world();
///   kolo::init();  // the next world
///   optimizer.enter_world();
class KOLO_API WorldMember {
 public:
  virtual ~WorldMember() = default;
  /// Ends what is under way and forgets the ranks. Other use is an error until enter_world().
  virtual void leave_world() = 0;
  /// Collective, like the constructor, with its errors.
  virtual void enter_world() = 0;

 protected:
  WorldMember() = default;
  WorldMember(const WorldMember&) = default;
  WorldMember(WorldMember&&) = default;
  WorldMember& operator=(const WorldMember&) = default;
  WorldMember& operator=(WorldMember&&) = default;
};

}  // namespace kolo
