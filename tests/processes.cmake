# Tests in which ranks are processes: the public library, launchers, hosts, an installed kolo.
# The library as users have it, with its one runtime a process: so a main of its own, and processes.
add_executable(api_tests bindings/core/api_test.cc bindings/core/exit_test.cc)
kolo_configure_target(api_tests)
target_include_directories(api_tests PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(api_tests PRIVATE kolo::kolo GTest::gmock GTest::gtest_main)
add_test(NAME api_alone COMMAND api_tests --gtest_filter=Api.*)
add_test(NAME api_retry COMMAND api_tests --gtest_filter=ApiRetry.*)
add_test(NAME api_threads COMMAND api_tests --gtest_filter=ApiThreads.*)
add_test(NAME api_exit COMMAND api_tests --gtest_filter=ApiExit.*)
set_tests_properties(api_alone api_retry api_threads api_exit PROPERTIES TIMEOUT 60 LABELS ucx)
set_tests_properties(api_retry PROPERTIES PROCESSORS 2)
foreach(ranks 2 3)
  kolo_add_mpi_test(api_${ranks} PROGRAM api_tests NP ${ranks} ARGS --gtest_filter=Api.*)
endforeach()

if(KOLO_HAS_PMIX AND KOLO_HAS_MPI)
  # Over the PMIx of Open MPI's mpirun.
  foreach(ranks 1 3)
    kolo_add_mpi_test(api_pmix_${ranks} PROGRAM api_tests NP ${ranks} ARGS --gtest_filter=Api.*)
    set_tests_properties(api_pmix_${ranks} PROPERTIES
      ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_INIT_METHOD=pmix://")
  endforeach()
endif()

# Over the PMI of MPICH's mpirun, which may be installed beside another MPI.
find_program(KOLO_MPICH_MPIRUN mpirun.mpich)
if(KOLO_MPICH_MPIRUN)
  foreach(ranks 1 3)
    add_test(NAME api_pmi_${ranks} COMMAND ${KOLO_MPICH_MPIRUN} -np ${ranks}
      $<TARGET_FILE:api_tests> --gtest_filter=Api.*)
    set_tests_properties(api_pmi_${ranks} PROPERTIES TIMEOUT 120 LABELS "mpi"
      PROCESSORS ${ranks} ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_INIT_METHOD=pmi://")
  endforeach()
endif()

# Real processes, by kolo-run and by every other way in that needs no scheduler; with or without MPI.
add_executable(launch_probe tools/run/probe.cc)
kolo_configure_target(launch_probe)
target_link_libraries(launch_probe PRIVATE kolo::kolo)
if(KOLO_HAS_PMIX AND KOLO_HAS_MPI)
  kolo_add_mpi_test(failure_under_pmix PROGRAM launch_probe NP 3 ARGS --abort)
  set_tests_properties(failure_under_pmix PROPERTIES
    ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_INIT_METHOD=pmix://"
    PASS_REGULAR_EXPRESSION "the disk is full" FAIL_REGULAR_EXPRESSION "improperly")
endif()
# An elastic job without a launcher.
add_executable(membership_probe bindings/core/membership_probe.cc)
kolo_configure_target(membership_probe)
target_link_libraries(membership_probe PRIVATE kolo::kolo)
add_test(NAME membership COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bindings/core/membership_test
  --probe $<TARGET_FILE:membership_probe>)
set_tests_properties(membership PROPERTIES TIMEOUT 300 LABELS ucx PROCESSORS 3)
# An elastic job that is disturbed, without LibTorch: sanitizers look at it.
add_executable(chaos_core_worker chaos/core_worker.cc)
kolo_configure_target(chaos_core_worker)
target_include_directories(chaos_core_worker PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(chaos_core_worker PRIVATE kolo::kolo)
set(chaos_nodes_options --hosts 2 --ranks 4 --nodes)
foreach(of core nodes)
  add_test(NAME chaos_${of} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/chaos/chaos
    --kolo-run $<TARGET_FILE:kolo-run> --worker $<TARGET_FILE:chaos_core_worker>
    --faults 10 ${chaos_${of}_options})
  set_tests_properties(chaos_${of} PROPERTIES TIMEOUT 300 LABELS ucx PROCESSORS 3)
  if(KOLO_SANITIZE MATCHES thread)  # see kolo_add_test()
    set_tests_properties(chaos_${of} PROPERTIES ENVIRONMENT UCX_MEM_MMAP_HOOK_MODE=none)
  endif()
endforeach()
foreach(test launch kolo_run kolo_run_waits)
  add_test(NAME ${test} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/run/${test}_test
    --kolo-run $<TARGET_FILE:kolo-run> --probe $<TARGET_FILE:launch_probe>)
  set_tests_properties(${test} PROPERTIES TIMEOUT 300 LABELS ucx)
endforeach()
set_tests_properties(launch kolo_run PROPERTIES RUN_SERIAL ON)
set_tests_properties(kolo_run_waits PROPERTIES COST 500)
if(KOLO_HAS_MPI)
  add_test(NAME mpi_rank_without_init COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/support/mpirun -np 2
    sh -c "test $OMPI_COMM_WORLD_RANK = 1 || exec \"$0\"" $<TARGET_FILE:launch_probe>)
  set_tests_properties(mpi_rank_without_init PROPERTIES TIMEOUT 60 LABELS mpi
    ENVIRONMENT KOLO_INIT_TIMEOUT=2 PASS_REGULAR_EXPRESSION "MPI_Init_thread.. has not returned")
endif()
kolo_add_test(strays_tests LABELS tools SOURCES tools/run/strays_test.cc
  ${PROJECT_SOURCE_DIR}/tools/run/read_text.cc
  ${PROJECT_SOURCE_DIR}/tools/run/strays.cc)
kolo_add_test(roster_tests LABELS tools SOURCES tools/run/roster_test.cc
  ${PROJECT_SOURCE_DIR}/tools/run/blacklist.cc
  ${PROJECT_SOURCE_DIR}/tools/run/placement.cc
  ${PROJECT_SOURCE_DIR}/tools/run/read_text.cc
  ${PROJECT_SOURCE_DIR}/tools/run/roster.cc)
add_executable(endless_probe tools/run/endless_probe.cc)
kolo_configure_target(endless_probe)
target_link_libraries(endless_probe PRIVATE kolo::kolo)
add_test(NAME silence COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/run/silence_test
  --kolo-run $<TARGET_FILE:kolo-run> --probe $<TARGET_FILE:endless_probe>)
set_tests_properties(silence PROPERTIES TIMEOUT 180 LABELS ucx RUN_SERIAL ON)
add_executable(spawn_probe bindings/core/spawn_probe.cc)
kolo_configure_target(spawn_probe)
target_link_libraries(spawn_probe PRIVATE kolo::kolo)
add_test(NAME spawn COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bindings/core/spawn_test
  --kolo-run $<TARGET_FILE:kolo-run> --probe $<TARGET_FILE:spawn_probe>)
set_tests_properties(spawn PROPERTIES TIMEOUT 180 LABELS ucx PROCESSORS 2)
# Random programs of all calls, verified, on several ranks, under many knobs, and with a rank that fails.
find_package(CLI11 REQUIRED)
add_library(stress_objects OBJECT
  bindings/core/stress/calls.cc
  bindings/core/stress/ordered_calls.cc
  bindings/core/stress/program.cc
  bindings/core/stress/reduced_output.cc
  bindings/core/stress/row_output.cc
  bindings/core/stress/stress_probe.cc
  bindings/core/stress/values.cc)
kolo_configure_target(stress_objects)
target_include_directories(stress_objects PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(stress_objects PUBLIC kolo::kolo CLI11::CLI11 fmt::fmt)
if(KOLO_HAS_CUDA)
  target_sources(stress_objects PRIVATE ${PROJECT_SOURCE_DIR}/tools/perf/cuda_gpu.cc)
  target_link_libraries(stress_objects PUBLIC CUDA::cudart_static)
else()
  target_sources(stress_objects PRIVATE ${PROJECT_SOURCE_DIR}/tools/perf/no_cuda_gpu.cc)
endif()
add_executable(stress_probe)
target_link_libraries(stress_probe PRIVATE stress_objects)
set(stress_test ${CMAKE_CURRENT_SOURCE_DIR}/bindings/core/stress/stress_test
  --probe $<TARGET_FILE:stress_probe>)
add_test(NAME stress COMMAND ${stress_test} --count 23)
add_test(NAME stress_faults COMMAND ${stress_test} --faults --count 10)
set_tests_properties(stress stress_faults PROPERTIES TIMEOUT 180 LABELS ucx RUN_SERIAL ON)
# Several hosts made of namespaces, with real ssh, mpirun and Slurm on them; where this machine cannot
# have them, CTest says "Skipped", and the test why.
set(cluster_parts by_hand ipv6 kolo_run slurm mpich intelmpi)
if(KOLO_HAS_MPI)
  list(APPEND cluster_parts jobs mpirun)
endif()
if(KOLO_HAS_PMIX)
  list(APPEND cluster_parts openmpi5)
endif()
set(cluster_options --peers ${PROJECT_SOURCE_DIR}/build/peers)
if(KOLO_HAS_TORCH)
  # The wheel's torchrun, if this LibTorch is one.
  get_filename_component(python ${KoloTorch_ROOT}/../../../../bin/python ABSOLUTE)
  list(APPEND cluster_parts torchrun)
  list(APPEND cluster_options --python ${python})
endif()
if(TARGET mnist)
  list(APPEND cluster_parts digits losses)
  list(APPEND cluster_options --digits $<TARGET_FILE:mnist> --data ${PROJECT_SOURCE_DIR}/build/data/mnist)
endif()
if(KOLO_HAS_TORCH)
  list(APPEND cluster_parts elastic)
  list(APPEND cluster_options --worker $<TARGET_FILE:elastic_worker>)
endif()
foreach(part IN LISTS cluster_parts)
  add_test(NAME cluster_${part} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cluster/cluster_test
    --only ${part} --kolo-run $<TARGET_FILE:kolo-run> --probe $<TARGET_FILE:launch_probe>
    ${cluster_options})
  # Mostly they wait, so one at a time beside other tests, from the start: CTest begins with what costs most.
  set_tests_properties(cluster_${part} PROPERTIES TIMEOUT 180 LABELS cluster SKIP_RETURN_CODE 77
    RESOURCE_LOCK cluster COST 1000)
endforeach()
if(KOLO_HAS_TORCH)
  # A host is given up after 30 s, twice.
  set_tests_properties(cluster_elastic PROPERTIES TIMEOUT 300)
endif()
add_test(NAME cluster_cuts COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cluster/cluster_test
  --only cuts --kolo-run $<TARGET_FILE:kolo-run> --probe $<TARGET_FILE:endless_probe>)
set_tests_properties(cluster_cuts PROPERTIES TIMEOUT 180 LABELS cluster SKIP_RETURN_CODE 77 RUN_SERIAL ON)
if(TARGET mnist)
  # Some thirty trainings, each on up to four ranks.
  set_tests_properties(cluster_losses PROPERTIES TIMEOUT 600)
endif()
add_test(NAME kolo_run_api_3
  COMMAND kolo-run -np 3 $<TARGET_FILE:api_tests> --gtest_filter=Api.*)
add_test(NAME kolo_run_api_abort
  COMMAND kolo-run -np 3 $<TARGET_FILE:api_tests> --gtest_filter=ApiAbort.*)
set_tests_properties(kolo_run_api_3 kolo_run_api_abort PROPERTIES TIMEOUT 60 LABELS ucx PROCESSORS 3)

add_test(NAME job_scripts COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/examples/jobs_test
  --kolo-run $<TARGET_FILE:kolo-run>)
set_tests_properties(job_scripts PROPERTIES TIMEOUT 60 LABELS tools)
add_test(NAME lint_self_test COMMAND ${PROJECT_SOURCE_DIR}/tools/lint --self-test)
set_tests_properties(lint_self_test PROPERTIES TIMEOUT 60 LABELS tools)

# Many hosts with a rank each: nobody opens a connection to each other one to say that it ends, which
# UCX 1.13 did not outlive, and descriptors suffice.
add_executable(many_hosts bindings/core/many_hosts.cc)
kolo_configure_target(many_hosts)
target_link_libraries(many_hosts PRIVATE kolo::kolo)
foreach(end end ordered die connect receive)
  add_test(NAME many_hosts_${end} COMMAND kolo-run -np 80 $<TARGET_FILE:many_hosts> ${end})
  set_tests_properties(many_hosts_${end} PROPERTIES TIMEOUT 180 LABELS ucx RUN_SERIAL ON)
endforeach()
set_tests_properties(many_hosts_end many_hosts_ordered many_hosts_receive PROPERTIES
  FAIL_REGULAR_EXPRESSION "error: ")
set_tests_properties(many_hosts_die many_hosts_connect PROPERTIES
  PASS_REGULAR_EXPRESSION "rank 40 .* was the first to end with an error, signal 9"
  FAIL_REGULAR_EXPRESSION "blames another one;Assertion;signal 6")

# The C interface, from C.
foreach(program c_api_test elastic_probe)
  add_executable(${program} bindings/c/${program}.c)
  kolo_configure_target(${program})
  set_target_properties(${program} PROPERTIES
    C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_link_libraries(${program} PRIVATE kolo::kolo)
endforeach()
foreach(ranks 1 2 3)
  add_test(NAME c_api_${ranks} COMMAND kolo-run -np ${ranks} $<TARGET_FILE:c_api_test>)
  set_tests_properties(c_api_${ranks} PROPERTIES TIMEOUT 60 LABELS ucx PROCESSORS ${ranks})
endforeach()
add_test(NAME c_api_elastic
  COMMAND kolo-run -np 3 --min-np 2 --restarts 1 $<TARGET_FILE:elastic_probe>)
add_test(NAME c_api_elastic_splits
  COMMAND kolo-run -np 3 --min-np 2 --restarts 1 $<TARGET_FILE:elastic_probe> differ)
set_tests_properties(c_api_elastic_splits PROPERTIES TIMEOUT 60 LABELS ucx PROCESSORS 3
  PASS_REGULAR_EXPRESSION "'calls of split_world\\(\\): 1'. ranks 0, 1 have 'calls of split_world\\(\\): 2'")
set_tests_properties(c_api_elastic PROPERTIES TIMEOUT 60 LABELS ucx PROCESSORS 3
  PASS_REGULAR_EXPRESSION "generation 1: 3 ranks\n(.*\n)?generation [23]: 3 ranks"
  FAIL_REGULAR_EXPRESSION "last error")

# Another project finds, builds on and runs what `cmake --install` leaves. It installs this build, so
# everything must have been built.
if(NOT KOLO_SANITIZE)
  add_test(NAME consumer COMMAND ${CMAKE_COMMAND}
    -D BUILD=${PROJECT_BINARY_DIR} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/consumer
    -D WITH_TORCH=${KOLO_HAS_TORCH} -D COMPILER=${CMAKE_CXX_COMPILER}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.cmake)
  set_tests_properties(consumer PROPERTIES TIMEOUT 300 LABELS tools)
  add_test(NAME consumer_names_a_wrong_torch COMMAND ${CMAKE_COMMAND}
    -D CMAKE_MODULE_PATH=${PROJECT_SOURCE_DIR}/cmake -D KOLO_TORCH_ROOT=/nosuch
    -P ${CMAKE_CURRENT_SOURCE_DIR}/consumer/find_torch.cmake)
  set_tests_properties(consumer_names_a_wrong_torch PROPERTIES TIMEOUT 60 LABELS tools
    PASS_REGULAR_EXPRESSION "KOLO_TORCH_ROOT=/nosuch is no LibTorch")
endif()
