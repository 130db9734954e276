// The parts of route() that its two files share. Private to runtime/planning.
#pragma once

#include "runtime/planning/route.h"

namespace kolo {

/// Route of a call on device memory.
Route route_on_device(const CallShape& call, const Resources& resources, const Policy& policy);

/// Bytes of a partial sum divided by those of an input: 2 for half types that are summed, else 1.
double partial_width(const CallShape& call);
/// The request before an algorithm is chosen.
ScheduleRequest base_request(const CallShape& call, const Resources& resources,
                             const Policy& policy);
/// The schedule on host memory.
ScheduleRequest host_request(const CallShape& call, const Resources& resources,
                             const Policy& policy);
/// Whether windows of host memory carry calls other than all-reduces.
bool moves_through_windows(const ScheduleRequest& request, const Resources& resources,
                           DataType type);
/// Takes two levels where ranks share hosts, and windows of `window_bytes` hold pieces of at least
/// `shortest_piece` bytes. Then only data that other hosts lack goes over the network.
void take_two_levels(ScheduleRequest& request, const HostLayout& layout, DataType type,
                     std::size_t window_bytes, std::size_t shortest_piece);
/// Orders neighbours host by host, if the schedule goes from neighbour to neighbour on one level.
void go_by_hosts(ScheduleRequest& request, const HostLayout& layout);

}  // namespace kolo
