// Starts ranks without a launcher: the program starts itself once for each rank. Part of
// <kolo/kolo.h>.
//
//   int main(int argc, char** argv) {
//     return kolo::spawn(4, [&] { return train(argc, argv); });  // train() calls kolo::init()
//   }
#pragma once

#include <kolo/export.h>

#include <functional>

namespace kolo {

/// Runs `fn` on `nprocs` ranks of this host, each in its own process, like torch's mp.spawn.
/// Returns 0, or the result of the rank that was first to end with an error (128 + N for signal N).
/// spawn() ends the other ranks after a failure.
///
/// - Each process runs the program anew with the same arguments. It runs main() up to this call,
///   then `fn`, and exits with the result of `fn` (1 for an exception, which it prints).
/// - So code before this call runs in every process, and code after it only in the caller.
/// - Nothing is forked, so threads and CUDA may be in use already.
/// - kolo tells several spawn() calls apart by their order, so the order must be the same in every
///   process.
/// - `nprocs` 0 means one rank for each visible CUDA device, and at least one.
/// - In a process that a launcher started (kolo-run, mpirun, srun, torchrun), spawn() calls `fn`
///   directly, whatever `nprocs` is. It warns if mpirun, srun or torchrun started only this process
///   and `nprocs` is above 1.
/// - Throws kInvalidArgument for a negative number, kOutOfMemory if a process cannot be started,
///   and kUnsupported after init(). One thread at a time.
KOLO_API int spawn(int nprocs, const std::function<int()>& fn);

}  // namespace kolo
