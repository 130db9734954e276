# Tests of runtime/ and transport/, in the order of the layers: ranks are threads.
kolo_add_test(base_tests LABELS inprocess SOURCES
  runtime/base/available_memory_test.cc
  runtime/base/checksum_test.cc
  runtime/base/config_test.cc
  runtime/base/error_test.cc
  runtime/base/log_test.cc
  runtime/base/proc_access_test.cc
  runtime/base/progress_token_test.cc
  runtime/base/recycled_test.cc
  runtime/base/resource_limits_test.cc
  runtime/base/types_test.cc
  runtime/base/work_test.cc)
kolo_add_test(bootstrap_tests LABELS inprocess SOURCES
  runtime/bootstrap/agent_meeting_test.cc
  runtime/bootstrap/fake_agent.cc
  runtime/bootstrap/clock_exchange_test.cc
  runtime/bootstrap/file_store_test.cc
  runtime/bootstrap/handshake_test.cc
  runtime/bootstrap/elastic_store_test.cc
  runtime/bootstrap/kept_port_test.cc
  runtime/bootstrap/launcher_test.cc
  runtime/bootstrap/lobby_test.cc
  runtime/bootstrap/meeting_again_test.cc
  runtime/bootstrap/secret_file_test.cc
  runtime/bootstrap/secret_test.cc
  runtime/bootstrap/pmi_bootstrap_test.cc
  runtime/bootstrap/pmi_client_test.cc
  runtime/bootstrap/pmi_wire_test.cc
  runtime/bootstrap/store_bootstrap_test.cc
  runtime/bootstrap/store_lobby_test.cc
  runtime/bootstrap/store_wire_test.cc
  runtime/bootstrap/tcp_store_test.cc
  runtime/bootstrap/relay_test.cc
  runtime/bootstrap/rendezvous_method_test.cc
  runtime/topology/core_matching_test.cc
  runtime/topology/cpu_limit_test.cc
  runtime/topology/numa_test.cc
  runtime/topology/world_test.cc
  runtime/health/process_watch_test.cc
  bindings/core/init_options_test.cc)
# A thousand threads, of which a sanitizer would make too much.
if(NOT KOLO_SANITIZE)
  kolo_add_test(many_ranks_tests LABELS large TIMEOUT 180 SOURCES
    runtime/bootstrap/many_ranks_test.cc)
endif()
if(KOLO_HAS_MPI)
  # MPI starts once a process, so this program has its own main.
  add_executable(mpi_bootstrap_tests runtime/bootstrap/mpi_bootstrap_test.cc)
  kolo_configure_target(mpi_bootstrap_tests)
  target_link_libraries(mpi_bootstrap_tests PRIVATE kolo_test_support)
endif()
foreach(ranks 1 2 3)
  kolo_add_mpi_test(mpi_bootstrap_${ranks} PROGRAM mpi_bootstrap_tests NP ${ranks})
endforeach()
kolo_add_mpi_test(mpi_bootstrap_of_a_user_of_mpi PROGRAM mpi_bootstrap_tests NP 2
  ARGS --user-starts-mpi)
kolo_add_test(negotiation_tests LABELS inprocess SOURCES
  runtime/negotiation/control_tree_test.cc
  runtime/negotiation/controller_test.cc
  runtime/negotiation/controllers_test.cc
  runtime/negotiation/coordinator_test.cc
  runtime/negotiation/count_dissemination_test.cc
  runtime/negotiation/locked_plan_test.cc
  runtime/negotiation/ready_slots_test.cc
  runtime/negotiation/repeated_steps_test.cc
  runtime/negotiation/response_cache_test.cc
  runtime/negotiation/slot_set_test.cc
  runtime/negotiation/subtree_ready_test.cc
  runtime/negotiation/wire_test.cc
  runtime/submission/finite_check_test.cc
  runtime/submission/split_table_test.cc
  runtime/submission/tensor_table_test.cc
  runtime/fusion/fusion_plan_test.cc
  runtime/health/departures_test.cc
  runtime/health/heartbeat_test.cc)
# What has one thread: ThreadSanitizer would find nothing.
if(NOT KOLO_SANITIZE MATCHES thread)
  kolo_add_test(collectives_tests LABELS inprocess TIMEOUT 120 SOURCES
    support/schedule_checker_collectives_test.cc
    support/schedule_checker_test.cc
    runtime/collectives/allgather_bruck_test.cc
    runtime/collectives/allgather_recursive_doubling_test.cc
    runtime/collectives/allgather_ring_test.cc
    runtime/collectives/algorithm_test.cc
    runtime/collectives/allreduce_double_tree_test.cc
    runtime/collectives/allreduce_halving_doubling_test.cc
    runtime/collectives/allreduce_hierarchical_test.cc
    runtime/collectives/allreduce_recursive_doubling_test.cc
    runtime/collectives/allreduce_mapped_test.cc
    runtime/collectives/allreduce_numa_test.cc
    runtime/collectives/moves_by_nodes_test.cc
    runtime/collectives/allreduce_ring_test.cc
    runtime/collectives/alltoall_bruck_test.cc
    runtime/collectives/alltoall_pairwise_test.cc
    runtime/collectives/barrier_dissemination_test.cc
    runtime/collectives/broadcast_binomial_test.cc
    runtime/collectives/broadcast_double_tree_test.cc
    runtime/planning/chooser_test.cc
    runtime/planning/exchange_fit_test.cc
    runtime/planning/hand_overs_test.cc
    runtime/planning/route_test.cc
    runtime/collectives/gather_scatter_test.cc
    runtime/collectives/hierarchical_moves_test.cc
    runtime/collectives/mapped_moves_test.cc
    runtime/collectives/meet_first_test.cc
    runtime/collectives/reduce_scatter_halving_test.cc
    runtime/collectives/reduce_scatter_ring_test.cc
    runtime/collectives/staged_messages_test.cc)
  # The kernels of CUDA, played on the host; a build without CUDA compiles their plan here alone.
  set(cuda_plan ${PROJECT_SOURCE_DIR}/runtime/device/cuda/batch_plan.cc)
  if(KOLO_HAS_CUDA)
    set(cuda_plan "")
  endif()
  kolo_add_test(cuda_kernels_tests COMPUTES LABELS inprocess TIMEOUT 120 SOURCES
    ${cuda_plan}
    runtime/device/cuda/adasum_test.cc
    runtime/device/cuda/batch_plan_test.cc
    runtime/device/cuda/combine_test.cc
    runtime/device/cuda/played_device.cc)
endif()
kolo_add_test(device_tests COMPUTES LABELS inprocess SOURCES
  runtime/device/destinations_test.cc
  runtime/device/device_choice_test.cc
  runtime/device/half_types_test.cc
  runtime/device/host_device_test.cc
  runtime/device/reductions_test.cc
  runtime/device/threaded_device_test.cc)
kolo_add_test(execution_tests LABELS inprocess TIMEOUT 120 SOURCES
  runtime/execution/adasum_test.cc
  runtime/execution/collectives_test.cc
  runtime/execution/data_movement_test.cc
  runtime/memory/arena_test.cc
  runtime/memory/device_unmap_barrier_test.cc
  runtime/memory/host_window_test.cc
  runtime/exchange/recent_calls_test.cc
  runtime/memory/shared_arena_test.cc
  runtime/memory/shared_region_test.cc
  runtime/memory/users_memory_test.cc
  runtime/tuning/link_cache_test.cc
  runtime/tuning/link_probe_test.cc)
# The counter replaces operator new, so it is linked here alone; and compiled alone, since GCC warns of
# free() in the callers into which it is inlined.
set_source_files_properties(support/allocation_counter.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
kolo_add_test(executor_tests LABELS inprocess SOURCES
  support/allocation_counter.cc
  runtime/execution/executor_test.cc)
# The suite that each transport instantiates.
set(transport_conformance
  transport/transport_conformance.cc
  transport/transport_conformance_failures.cc
  transport/transport_conformance_messages.cc
  transport/transport_conformance_transfers.cc)
kolo_add_test(transport_tests LABELS inprocess SOURCES
  transport/checked_transport_test.cc
  transport/message_matcher_test.cc
  transport/loopback_test.cc
  support/faulty_transport_test.cc
  ${transport_conformance})
kolo_add_test(ucx_tests LABELS ucx SOURCES
  transport/ucx_gpudirect_test.cc
  transport/ucx_leftovers_test.cc
  transport/ucx_test.cc
  ${transport_conformance})
kolo_add_test(cycle_tests LABELS inprocess TIMEOUT 180 SOURCES
  runtime/cycle/after_abort_test.cc
  runtime/cycle/arena_abort_test.cc
  runtime/cycle/arena_fusion_test.cc
  runtime/cycle/arena_moves_test.cc
  runtime/cycle/arena_ordered_test.cc
  runtime/cycle/one_way_ahead_test.cc
  runtime/cycle/cached_test.cc
  runtime/cycle/cycle_test.cc
  runtime/cycle/submission_modes_test.cc
  runtime/cycle/edges_test.cc
  runtime/cycle/failures_test.cc
  runtime/cycle/groups_test.cc
  runtime/cycle/half_sums_test.cc
  runtime/cycle/hosts_test.cc
  runtime/cycle/init_failure_test.cc
  runtime/cycle/join_test.cc
  runtime/cycle/locked_plan_test.cc
  runtime/cycle/messages_test.cc
  runtime/cycle/nccl_test.cc
  runtime/cycle/nccl_training_test.cc
  runtime/cycle/ordered_clash_test.cc
  runtime/cycle/ordered_kinds_test.cc
  runtime/cycle/exchange_trial_test.cc
  runtime/cycle/numa_nodes_test.cc
  runtime/cycle/ordered_test.cc
  runtime/cycle/two_rank_exchange_test.cc
  runtime/cycle/paths_test.cc
  runtime/cycle/device_abort_test.cc
  runtime/cycle/device_arena_test.cc
  runtime/cycle/device_end_test.cc
  runtime/cycle/device_hosts_test.cc
  runtime/cycle/device_layout_test.cc
  runtime/cycle/device_network_test.cc
  runtime/cycle/device_pieces_test.cc
  runtime/cycle/device_set_hosts_test.cc
  runtime/cycle/device_sets_test.cc
  runtime/cycle/device_test.cc
  runtime/cycle/set_abort_test.cc
  runtime/cycle/set_failures_test.cc
  runtime/cycle/types_test.cc
  runtime/cycle/waiting_test.cc
  runtime/cycle/wire_check_test.cc
  runtime/cycle/finite_check_test.cc
  runtime/cycle/process_set_memory_test.cc
  runtime/cycle/process_set_removal_test.cc
  runtime/cycle/process_sets_test.cc
  runtime/cycle/shutdown_test.cc
  runtime/cycle/rows_test.cc
  support/trace_file.cc)
# The messages of small worlds through a tree, as those of large ones go. With a sanitizer by degree 1
# alone, whose relays begin at three ranks; several children of a rank have the tests above. Sanitizers
# leave out process sets, too, which take three quarters of the time. They begin with these tests, the
# longest.
set(degrees 1 2)
set(tests_of_trees *Cache*:*Groups*:*Join*:Mismatch*:*Set*:Shutdown*:Timeout*:*Unnamed*)
if(KOLO_SANITIZE)
  set(degrees 1)
  string(APPEND tests_of_trees -*Set*)
endif()
foreach(degree IN LISTS degrees)
  add_test(NAME cycle_tests_with_degree_${degree} COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR}
    $<TARGET_FILE:cycle_tests>
    --gtest_filter=${tests_of_trees})
  set_tests_properties(cycle_tests_with_degree_${degree} PROPERTIES TIMEOUT 600 LABELS inprocess COST 200
    ENVIRONMENT "KOLO_CONTROL_DEGREE=${degree};UCX_MEM_MMAP_HOOK_MODE=none")
endforeach()
kolo_add_test(row_tests LABELS inprocess TIMEOUT 300 SOURCES
  runtime/cycle/moves_test.cc
  runtime/cycle/reduce_scatter_test.cc)
# Takes 5 GiB, of which a sanitizer would make many more, so those presets leave it out.
if(NOT KOLO_SANITIZE)
  kolo_add_test(large_tests LABELS large TIMEOUT 180 SOURCES runtime/cycle/large_test.cc)
  # A sanitizer has a heap of its own.
  kolo_add_test(rank_memory_tests LABELS inprocess SOURCES runtime/cycle/rank_memory_test.cc)
endif()

kolo_add_test(nccl_tests LABELS inprocess SOURCES
  runtime/nccl/nccl_communicator_test.cc
  runtime/nccl/nccl_library_test.cc
  runtime/nccl/nccl_meeting_test.cc
  runtime/nccl/nccl_reduction_test.cc)

find_package(nlohmann_json REQUIRED)
kolo_add_test(flight_recorder_tests LABELS inprocess SOURCES
  support/trace_file.cc
  runtime/observe/flight_recorder_test.cc)
target_link_libraries(flight_recorder_tests PRIVATE nlohmann_json::nlohmann_json)
kolo_add_test(timeline_tests LABELS inprocess LIBRARIES nlohmann_json::nlohmann_json SOURCES
  support/trace_file.cc
  runtime/observe/timeline_test.cc
  runtime/observe/timeline_world_test.cc)
