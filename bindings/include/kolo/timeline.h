// A timeline of a part of a run: what this rank does, as KOLO_TIMELINE records it from init() on.
//
//   kolo::start_timeline("/tmp/step.json");  // /tmp/step.0.json on rank 0 of several
//   train(/*steps=*/10);
//   kolo::stop_timeline();                   // the file is complete
//
// - Each rank decides for itself; neither call is collective. Files of several ranks have one time
//   axis: kolo-timeline merge, docs/timeline.md.
// - The file has what begins in between: calls under way at the start are left out.
// - A timeline ends with its world, at shutdown() at the latest.
// - Any thread.
#pragma once

#include <kolo/export.h>

#include <string>

namespace kolo {

/// Creates or empties the file and records from now on. In `path`, "%r" becomes the rank; without
/// it, and with several ranks, ".rank" is put before the extension. KOLO_TIMELINE_STEPS=1 counts
/// here, too. Throws kInvalidArgument if this rank keeps a timeline already, also by KOLO_TIMELINE,
/// or if the path is no file that can be written to; kShutdown before init().
KOLO_API void start_timeline(const std::string& path);
/// Records no more and completes the file. Throws kInvalidArgument if this rank keeps no timeline,
/// kInternal with the reason if the file is not complete, kShutdown before init().
KOLO_API void stop_timeline();

}  // namespace kolo
