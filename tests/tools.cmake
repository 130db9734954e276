# Tests of tools/: kolo-info, kolo-perf, bench and timeline.
# kolo-info: what it finds and chooses, alone and among others.
add_test(NAME info_alone COMMAND kolo-info)
set_tests_properties(info_alone PROPERTIES TIMEOUT 60 LABELS "tools"
  PASS_REGULAR_EXPRESSION "met by           single")
add_test(NAME info_knobs COMMAND kolo-info --knobs --json)
set_tests_properties(info_knobs PROPERTIES TIMEOUT 60 LABELS "tools"
  PASS_REGULAR_EXPRESSION "\"name\": \"KOLO_ALGORITHM\"")
add_test(NAME info_knobs_values COMMAND kolo-info --knobs)
set_tests_properties(info_knobs_values PROPERTIES TIMEOUT 60 LABELS "tools"
  ENVIRONMENT "KOLO_SECRET=abc;KOLO_CHUNK_SIZE=512K" FAIL_REGULAR_EXPRESSION "abc"
  PASS_REGULAR_EXPRESSION "KOLO_CHUNK_SIZE += 512K .environment.*KOLO_ARENA += 68719476736 .default")
add_test(NAME info_build COMMAND kolo-run --check-build)
set_tests_properties(info_build PROPERTIES TIMEOUT 60 LABELS "tools"
  PASS_REGULAR_EXPRESSION "\\[X\\] TCP store.*\\[X\\] all-reduce.*\\[X\\] CPU .cores ")
# What UCX has to say is not in the midst of JSON, unless its user wants it there.
add_test(NAME info_json COMMAND sh -c "\"$0\" --json 2>/dev/null | python3 -m json.tool"
  $<TARGET_FILE:kolo-info>)
add_test(NAME info_json_warning COMMAND sh -c "\"$0\" --json 2>&1 >/dev/null" $<TARGET_FILE:kolo-info>)
add_test(NAME info_ucx_log_file COMMAND sh -c "\"$0\" --json 2>/dev/null" $<TARGET_FILE:kolo-info>)
set_tests_properties(info_json info_json_warning info_ucx_log_file PROPERTIES TIMEOUT 60
  LABELS "tools" ENVIRONMENT "UCX_NO_SUCH_SETTING=1")
set_tests_properties(info_json PROPERTIES PASS_REGULAR_EXPRESSION "\"transport\":")
set_tests_properties(info_json_warning PROPERTIES PASS_REGULAR_EXPRESSION "UCX.*NO_SUCH_SETTING")
set_tests_properties(info_ucx_log_file PROPERTIES PASS_REGULAR_EXPRESSION "UCX.*NO_SUCH_SETTING"
  ENVIRONMENT "UCX_NO_SUCH_SETTING=1;UCX_LOG_FILE=stdout")
# It may well find something here, but it must come to an end.
add_test(NAME info_doctor COMMAND kolo-run -np 2 $<TARGET_FILE:kolo-info> --doctor)
set_tests_properties(info_doctor PROPERTIES TIMEOUT 60 LABELS "tools" PROCESSORS 2
  PASS_REGULAR_EXPRESSION "shared memory: 16 MiB mapped.*job: .ok. clocks: within.*links: inside hosts [0-9]")
kolo_add_mpi_test(info_2 PROGRAM kolo-info NP 2 LABELS tools)
if(TEST info_2)
  set_tests_properties(info_2 PROPERTIES
    PASS_REGULAR_EXPRESSION "ranks            2, 2 on this host.*from      0 B: mapped")
endif()
kolo_add_mpi_test(info_2_forced PROGRAM kolo-info NP 2 LABELS tools ARGS --json)
if(TEST info_2_forced)
  set_tests_properties(info_2_forced PROPERTIES ENVIRONMENT "KOLO_ALGORITHM=ring;KOLO_SHARED_MEMORY=0"
    PASS_REGULAR_EXPRESSION "\"algorithm\": \"ring\".*\"shared_bytes\": 0")
endif()
# Every rank maps the others' windows besides its own, of which 75 GB have no room for 64 GiB each.
if(NOT KOLO_SANITIZE)
  add_test(NAME info_few_addresses COMMAND sh -c
    "ulimit -v 75000000; exec \"$0\" -np 2 \"$1\"" $<TARGET_FILE:kolo-run> $<TARGET_FILE:kolo-info>)
  set_tests_properties(info_few_addresses PROPERTIES TIMEOUT 60 LABELS "tools" PROCESSORS 2
    PASS_REGULAR_EXPRESSION "[0-9] GiB of addresses for kolo::allocate")
endif()

add_test(NAME kernels COMMAND kolo-kernels -n 1 4096)
set_tests_properties(kernels PROPERTIES TIMEOUT 60 LABELS "tools"
  PASS_REGULAR_EXPRESSION "float16 +bfloat16.* 4096( +[0-9.]+)+")

# kolo-perf: its parts, then each collective, type and operation, the report and the peers.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
kolo_add_test(perf_tests LABELS inprocess SOURCES
  tools/perf/options_test.cc
  tools/perf/pattern_test.cc
  tools/perf/probe_test.cc
  tools/perf/statistics_test.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/measure.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/numbers.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/options.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/pattern.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/probe.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/problem.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/shared_lines.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/statistics.cc
  LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)
kolo_add_test(perf_step_tests LABELS ucx SOURCES
  tools/perf/step_test.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/measure.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/pattern.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/problem.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/statistics.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/step.cc
  LIBRARIES nlohmann_json::nlohmann_json)
add_executable(perf_barrier_tests tools/perf/barrier_test.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/barrier.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/measure.cc
  ${PROJECT_SOURCE_DIR}/tools/perf/shared_lines.cc)
kolo_configure_target(perf_barrier_tests)
target_include_directories(perf_barrier_tests PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(perf_barrier_tests PRIVATE
  kolo::kolo fmt::fmt nlohmann_json::nlohmann_json GTest::gtest_main)
foreach(ranks 1 2 4)
  kolo_add_mpi_test(perf_barrier_${ranks} PROGRAM perf_barrier_tests NP ${ranks})
endforeach()
kolo_add_mpi_test(perf_sweep_2 PROGRAM kolo-perf NP 2 ARGS -e 1M -f 8 -n 3 -w 1)
kolo_add_mpi_test(perf_sweep_3_named PROGRAM kolo-perf NP 3
  ARGS -e 256K -f 8 -n 3 -w 1 --submission negotiated -d bfloat16 -o avg)
kolo_add_mpi_test(perf_types_2 PROGRAM kolo-perf NP 2
  ARGS allreduce reducescatter -d all -o all -b 4K -e 64K -f 16 -n 2 -w 1)
kolo_add_mpi_test(perf_batch_2 PROGRAM kolo-perf NP 2 ARGS -e 64K -f 32 -n 2 -w 1 -m 10 -P)
kolo_add_mpi_test(perf_left_2 PROGRAM kolo-perf NP 2 ARGS -e 64K -f 32 -n 2 -w 1 --rewrite 0)
kolo_add_mpi_test(perf_shared_3 PROGRAM kolo-perf NP 3 ARGS -e 4M -f 32 -n 2 -w 1 --memory shared)
# kolo_add_report_test(<name> NP <ranks> EXPECT <options of report_test> ARGS <arguments>)
function(kolo_add_report_test name)
  cmake_parse_arguments(ARG "" "NP" "EXPECT;ARGS" ${ARGN})
  if(NOT KOLO_HAS_MPI)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/perf/report_test ${ARG_EXPECT} --
    ${CMAKE_CURRENT_SOURCE_DIR}/support/mpirun -np ${ARG_NP} $<TARGET_FILE:kolo-perf> ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS "mpi;tools" PROCESSORS ${ARG_NP}
    ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()
set(moves broadcast,allgather,alltoall,gather,scatter)
set(collectives allreduce,reducescatter,sendrecv,barrier,${moves})
foreach(ranks 2 3)
  kolo_add_report_test(perf_collectives_${ranks} NP ${ranks} EXPECT --collectives ${collectives}
    ARGS all -e 256K -f 16 -n 3 -w 1 -r 1)
endforeach()
kolo_add_report_test(perf_compare_mpi NP 2
  EXPECT --collectives ${collectives} --engines kolo,mpi,memcpy
  ARGS all -e 64K -f 64 -n 3 -w 1 --compare mpi --limit)
foreach(ranks 1 2 4)
  kolo_add_report_test(perf_harness_${ranks} NP ${ranks}
    EXPECT --collectives allreduce,broadcast --engines kolo,mpi --protocol harness
    ARGS allreduce broadcast -e 1M -f 64 -n 11 -w 1 --compare mpi --protocol harness)
endforeach()
kolo_add_report_test(perf_harness_left_2 NP 2
  EXPECT --collectives allreduce --engines kolo --protocol harness
  ARGS -e 64K -f 32 -n 3 -w 1 -m 10 --protocol harness --rewrite 0)
if(KOLO_HAS_GLOO)
  kolo_add_report_test(perf_compare_gloo NP 2
    EXPECT --collectives allreduce,barrier,${moves} --engines kolo,gloo
    ARGS allreduce barrier broadcast allgather alltoall gather scatter
      -e 64K -f 64 -n 3 -w 1 --compare gloo)
endif()
# Real TCP between hosts of their own, where this machine can make them; else CTest says "Skipped".
add_test(NAME bench_hosts COMMAND ${PROJECT_SOURCE_DIR}/tools/bench hosts --ranks 2,3 --rate none
  -b 4 -e 1M -f 64 -n 3 -T 50 --perf $<TARGET_FILE:kolo-perf>)
add_test(NAME bench_hosts_audit COMMAND ${PROJECT_SOURCE_DIR}/tools/bench hosts --ranks 2,3
  --audit 1000 --rate none -b 4 -e 64 -f 16 -n 3 -T 50 --perf $<TARGET_FILE:kolo-perf>)
add_test(NAME bench_hosts_compare COMMAND ${PROJECT_SOURCE_DIR}/tools/bench hosts --ranks 2,3
  --compare mpi -b 4 -e 4K -f 32 -n 3 -T 50 --perf $<TARGET_FILE:kolo-perf>)
set_tests_properties(bench_hosts bench_hosts_audit bench_hosts_compare PROPERTIES TIMEOUT 120 LABELS tools
  SKIP_RETURN_CODE 77 PROCESSORS 3 RUN_SERIAL ON)
if(TARGET mnist)
  add_test(NAME bench_scaling COMMAND ${PROJECT_SOURCE_DIR}/tools/bench scaling --hosts 1,2
    --max-steps 10 --epochs 1 --rate none -T 80 --program $<TARGET_FILE:mnist>
    --out ${CMAKE_CURRENT_BINARY_DIR}/losses.png)
  set_tests_properties(bench_scaling PROPERTIES TIMEOUT 180 LABELS "tools;torch"
    SKIP_RETURN_CODE 77 RUN_SERIAL ON)
  add_test(NAME bench_training COMMAND ${PROJECT_SOURCE_DIR}/tools/bench training --rounds 1
    --epochs 2 -T 80 --program $<TARGET_FILE:mnist>)
  set_tests_properties(bench_training PROPERTIES TIMEOUT 180 LABELS "tools;torch" RUN_SERIAL ON)
endif()
add_test(NAME bench COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/bench_test)
set_tests_properties(bench PROPERTIES TIMEOUT 60 LABELS tools)
set(inside one_shot,two_shot,mapped)
set(messages ring,bidirectional_ring,recursive_doubling,halving_doubling,double_tree)
foreach(within 1.1 1)
  kolo_add_report_test(perf_audit_2_within_${within} NP 2
    EXPECT --audit ${inside},${messages} --within ${within}
    ARGS --audit -e 1M -f 64 -n 3 -w 1 --within ${within})
endforeach()
# On a machine with nothing else to do: ctest -C benchmark -R bench_audit
if(KOLO_HAS_MPI)
  add_test(NAME bench_audit CONFIGURATIONS benchmark COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/support/mpirun
    -np 2 $<TARGET_FILE:kolo-perf> --audit)
  set_tests_properties(bench_audit PROPERTIES TIMEOUT 900 LABELS "mpi;tools" RUN_SERIAL ON)
endif()
kolo_add_report_test(perf_step_2 NP 2 EXPECT --step resnet50 ARGS --step -n 2 -w 1)
if(KOLO_HAS_MPI)
  kolo_add_report_test(perf_step_compare_mpi NP 2 EXPECT --step resnet50 --engines kolo,mpi
    ARGS --step -n 2 -w 1 --compare mpi)
endif()
kolo_add_report_test(perf_step_small_2 NP 2 EXPECT --step small ARGS --step small -n 2 -w 1)
kolo_add_report_test(perf_step_shared_2 NP 2 EXPECT --step resnet50
  ARGS --step -n 2 -w 1 --memory shared)

set(launcher "")
if(KOLO_HAS_MPI)
  set(launcher --mpirun ${PROJECT_SOURCE_DIR}/tests/support/mpirun)
endif()
add_test(NAME timeline_tool COMMAND ${PROJECT_SOURCE_DIR}/tests/tools/timeline_test
  --perf $<TARGET_FILE:kolo-perf> ${launcher})
set_tests_properties(timeline_tool PROPERTIES TIMEOUT 180 LABELS "tools;mpi" PROCESSORS 2)
add_executable(flight_probe tools/flight/probe.cc)
kolo_configure_target(flight_probe)
target_include_directories(flight_probe PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(flight_probe PRIVATE kolo::kolo)
set(fr_trace "")
if(KOLO_HAS_TORCH AND EXISTS ${KoloTorch_ROOT}/distributed/flight_recorder)
  set(fr_trace --fr-trace ${KoloTorch_ROOT}/distributed/flight_recorder)
endif()
add_test(NAME flight_recorders COMMAND ${PROJECT_SOURCE_DIR}/tests/tools/flight/flight_test
  --kolo-run $<TARGET_FILE:kolo-run> --probe $<TARGET_FILE:flight_probe> ${fr_trace})
set_tests_properties(flight_recorders PROPERTIES TIMEOUT 240 LABELS "tools;ucx" PROCESSORS 3)

# What tools/gpu_check concludes of programs that pass, fail, cannot run or are missing.
add_test(NAME gpu_check COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/gpu_check_test
  --tool ${PROJECT_SOURCE_DIR}/tools/gpu_check)
set_tests_properties(gpu_check PROPERTIES TIMEOUT 120 LABELS "tools")
# kolo-simulate: its parts, and what it prints.
kolo_add_test(simulate_tests LABELS inprocess COMPUTES SOURCES
  tools/simulate/collective_test.cc
  tools/simulate/play_test.cc
  tools/simulate/start_up_test.cc
  tools/simulate/training_step_test.cc
  support/trace_file.cc
  LIBRARIES kolo_simulate_objects)
add_test(NAME simulate_json COMMAND sh -c "\"$0\" --hosts 2,4 --json | python3 -m json.tool"
  $<TARGET_FILE:kolo-simulate>)
set_tests_properties(simulate_json PROPERTIES TIMEOUT 60 LABELS "tools"
  PASS_REGULAR_EXPRESSION "\"algorithm\": \"double_tree\"")
add_test(NAME simulate_start_up COMMAND sh -c
  "\"$0\" --start-up --hosts 1,64 --ranks-per-host 8 --cores 4 --json | python3 -m json.tool"
  $<TARGET_FILE:kolo-simulate>)
set_tests_properties(simulate_start_up PROPERTIES TIMEOUT 60 LABELS "tools"
  PASS_REGULAR_EXPRESSION "\"name\": \"handshake\"")
# What programs say of arguments that cannot be meant.
add_test(NAME refusals COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/refusals_test
  --build ${PROJECT_BINARY_DIR})
set_tests_properties(refusals PROPERTIES TIMEOUT 120 LABELS "tools")
