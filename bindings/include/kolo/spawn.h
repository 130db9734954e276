// Ranks without a launcher: the program starts itself once for each. Part of <kolo/kolo.h>.
#pragma once

#include <kolo/export.h>

#include <functional>

namespace kolo {

/// Runs `fn` on `nprocs` ranks of this host, each in a process of its own, and returns 0, or what
/// the rank that failed first returned (128 + N for signal N); the others are ended then. As
/// torch's mp.spawn, but nothing is forked, so threads and CUDA may be in use already:
///
///     int main(int argc, char** argv) {
///       return kolo::spawn(4, [&] { return train(argc, argv); });  // train() calls kolo::init()
///     }
///
/// Each process is the program anew, with the same arguments: it runs main() up to this call, then
/// `fn`, and ends with what that returned (1 for an exception, which it prints). So what comes
/// before the call is done in every process, what comes after it in the caller alone. A later
/// spawn() is told from this one by the order of the calls, which must not depend on the process.
///
/// `nprocs` 0: one a CUDA device that is visible, at least one. In a process that a launcher has
/// started (kolo-run, mpirun, srun, torchrun), `fn` is called here, whatever `nprocs`; if it is the
/// only one that mpirun, srun or torchrun has started and `nprocs` is above 1, with a warning.
/// Throws kInvalidArgument for a negative number, kOutOfMemory if a process cannot be started,
/// kUnsupported after init(). One thread at a time.
KOLO_API int spawn(int nprocs, const std::function<int()>& fn);

}  // namespace kolo
