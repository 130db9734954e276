# Programs whose CUDA is the emulation of tests/support/emulated_cuda: its objects come before the
# libraries that hold the toolkit's runtime and the kernels, of which then nothing is taken. A call
# that the emulation lacks is an error of the linker's.
# A build without CUDA that finds the toolkit's headers, as those with sanitizers, has cuda_tests alone.
if(NOT KOLO_HAS_CUDA)
  find_package(CUDAToolkit 12.1 QUIET)
  if(NOT CUDAToolkit_FOUND)
    return()
  endif()
endif()
set(kernels "")
foreach(kernel adasum combine_half combine_narrow_integer combine_other combine_real combine_wide_integer)
  list(APPEND kernels ${PROJECT_SOURCE_DIR}/runtime/device/cuda/${kernel}.cu)
endforeach()
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
  "-xc++;-include;${CMAKE_CURRENT_SOURCE_DIR}/support/emulated_cuda/kernel_language.h")
add_library(kolo_emulated_cuda OBJECT
  support/emulated_cuda/gpus.cc
  support/emulated_cuda/kernels.cc
  support/emulated_cuda/memory.cc
  support/emulated_cuda/streams.cc
  ${kernels})
kolo_configure_target(kolo_emulated_cuda)
target_compile_options(kolo_emulated_cuda PRIVATE ${KOLO_COMPUTING_TEST_OPTIONS})
target_include_directories(kolo_emulated_cuda PRIVATE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/include ${PROJECT_SOURCE_DIR}/bindings/include)
target_include_directories(kolo_emulated_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})

# kolo's own handling of CUDA, call by call.
set(cuda_device "")
if(NOT KOLO_HAS_CUDA)
  foreach(source batch_plan cuda_accelerator cuda_context cuda_error cuda_event cuda_memory
      cuda_peer_memory cuda_stream find_accelerators kernels)
    list(APPEND cuda_device ${PROJECT_SOURCE_DIR}/runtime/device/cuda/${source}.cc)
  endforeach()
endif()
kolo_add_test(cuda_tests LABELS inprocess LIBRARIES kolo_emulated_cuda SOURCES
  runtime/device/cuda/cuda_device_test.cc ${cuda_device})
if(NOT KOLO_HAS_CUDA)
  return()
endif()

# The programs that tools/gpu_check runs, with ranks as processes.
set(emulated ${CMAKE_CURRENT_BINARY_DIR}/emulated)
function(kolo_add_emulated name)
  add_executable(emulated_${name} ${ARGN})
  kolo_configure_target(emulated_${name})
  target_include_directories(emulated_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(emulated_${name} PRIVATE kolo_emulated_cuda kolo_test_support
    CLI11::CLI11 nlohmann_json::nlohmann_json)
  set_target_properties(emulated_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${emulated})
endfunction()
set(perf ${PROJECT_SOURCE_DIR}/tools/perf)
kolo_add_emulated(device_check $<TARGET_OBJECTS:device_check_objects>)
kolo_add_emulated(kolo-perf $<TARGET_OBJECTS:kolo_perf_objects>
  ${perf}/no_gloo_engine.cc ${perf}/no_mpi_engine.cc ${perf}/no_nccl_engine.cc ${perf}/no_oneccl_engine.cc)

kolo_add_emulated(stress_probe $<TARGET_OBJECTS:stress_objects>)

set(info ${PROJECT_SOURCE_DIR}/tools/info)
kolo_add_emulated(kolo-info $<TARGET_OBJECTS:kolo_info_objects> ${info}/build.cc)
target_compile_definitions(emulated_kolo-info PRIVATE
  KOLO_INFO_TORCH=0 KOLO_INFO_PMIX=$<BOOL:${KOLO_HAS_PMIX}> KOLO_INFO_CUDA=1)

# kolo_add_emulated_test(<name> COMMAND <command> [NP <ranks>] [GPUS <devices>] [APART])
function(kolo_add_emulated_test name)
  cmake_parse_arguments(ARG "APART" "NP;GPUS" "COMMAND" ${ARGN})
  set(environment "KOLO_DEVICE_MEMORY=32M;KOLO_DEVICE_ARENA=32M")
  if(ARG_GPUS)
    list(APPEND environment EMULATED_GPUS=${ARG_GPUS})
  endif()
  if(ARG_APART)
    list(APPEND environment EMULATED_GPUS_APART=1)
  endif()
  if(ARG_NP)
    list(PREPEND ARG_COMMAND kolo-run -np ${ARG_NP})
  else()
    set(ARG_NP 1)
  endif()
  add_test(NAME emulated_${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(emulated_${name} PROPERTIES TIMEOUT 180 LABELS emulated
    PROCESSORS ${ARG_NP} ENVIRONMENT "${environment}")
endfunction()
kolo_add_emulated_test(device COMMAND emulated_device_check --quick)
kolo_add_emulated_test(second_device COMMAND emulated_device_check --quick --device 1 GPUS 2)
set(everything $<TARGET_FILE:emulated_kolo-perf> all --device cuda -d all -o all
  -b 4 -e 256K -f 64 -n 2 -w 1)
set(some $<TARGET_FILE:emulated_kolo-perf> all --device cuda -b 4 -e 1M -f 64 -n 2 -w 1)
kolo_add_emulated_test(shared_2 NP 2 COMMAND ${everything})
kolo_add_emulated_test(shared_4 NP 4 GPUS 2 COMMAND ${everything})
kolo_add_emulated_test(one_each_2 NP 2 GPUS 2 COMMAND ${everything})
kolo_add_emulated_test(apart_3 NP 3 GPUS 3 APART COMMAND ${some})
kolo_add_emulated_test(in_shared_2 NP 2 COMMAND ${some} --memory shared)
kolo_add_emulated_test(in_none_shared COMMAND ${some} --memory shared)
set_tests_properties(emulated_in_none_shared PROPERTIES
  PASS_REGULAR_EXPRESSION "--memory shared: .*KOLO_DEVICE_ARENA")
kolo_add_emulated_test(step NP 2 COMMAND $<TARGET_FILE:emulated_kolo-perf> --step small --device cuda
  -n 1 -w 1)
kolo_add_emulated_test(stress COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bindings/core/stress/stress_test
  --probe $<TARGET_FILE:emulated_stress_probe> --gpu --count 12)
set_tests_properties(emulated_stress PROPERTIES RUN_SERIAL ON)
kolo_add_emulated_test(info_shared NP 2 COMMAND $<TARGET_FILE:emulated_kolo-info>)
set_tests_properties(emulated_info_shared PROPERTIES
  PASS_REGULAR_EXPRESSION "is mapped by all 2 ranks of a host, on 1 device, by turns[ \n]+.NVIDIA MPS")
kolo_add_emulated_test(info_served NP 2 COMMAND $<TARGET_FILE:emulated_kolo-info>)
set_property(TEST emulated_info_served APPEND PROPERTY ENVIRONMENT EMULATED_GPUS_SERVED=1)
set_tests_properties(emulated_info_served PROPERTIES
  PASS_REGULAR_EXPRESSION "is mapped by all 2 ranks of a host, on 1 device\n")
kolo_add_emulated_test(info_unknown NP 2 COMMAND $<TARGET_FILE:emulated_kolo-info>)
set_property(TEST emulated_info_unknown APPEND PROPERTY ENVIRONMENT EMULATED_GPUS_SERVED=unknown)
set_tests_properties(emulated_info_unknown PROPERTIES
  PASS_REGULAR_EXPRESSION "on 1 device, by turns[ \n]+.NVIDIA MPS")
kolo_add_emulated_test(info_one_each NP 2 GPUS 2 COMMAND $<TARGET_FILE:emulated_kolo-info>)
set_tests_properties(emulated_info_one_each PROPERTIES
  PASS_REGULAR_EXPRESSION "is mapped by all 2 ranks of a host, on 2 devices\n")
kolo_add_emulated_test(info_apart NP 2 GPUS 2 APART COMMAND $<TARGET_FILE:emulated_kolo-info>)
set_tests_properties(emulated_info_apart PROPERTIES PASS_REGULAR_EXPRESSION
  "warning: host .*cannot reach the memory of GPU.*device memory +passes through the host's memory: device")
# What of tools/gpu_check is not about rates: masks, and a rank that is killed while it is mapped.
kolo_add_emulated_test(gpu_check COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/emulated_gpu_check_test
  --tool ${PROJECT_SOURCE_DIR}/tools/gpu_check --kolo-run $<TARGET_FILE:kolo-run>
  --programs ${emulated} GPUS 2)
set_tests_properties(emulated_gpu_check PROPERTIES RUN_SERIAL ON)
# Between hosts of their own, two ranks and devices each, where this machine can make them.
foreach(collective allreduce broadcast)
  kolo_add_emulated_test(hosts_${collective} GPUS 2 COMMAND ${PROJECT_SOURCE_DIR}/tools/bench hosts
    --ranks 4 --per-host 2 --rate none --collective ${collective} -b 4K -e 4M -f 32 -n 2 -T 50
    --perf ${CMAKE_CURRENT_SOURCE_DIR}/tools/emulated_perf)
  set_property(TEST emulated_hosts_${collective} APPEND PROPERTY
    ENVIRONMENT "EMULATED_PERF=$<TARGET_FILE:emulated_kolo-perf>")
  set_tests_properties(emulated_hosts_${collective} PROPERTIES SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endforeach()
