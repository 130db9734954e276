# What only a GPU can show: programs that end with 77, which CTest calls "Skipped", where there is none.
add_executable(nccl_check gpu/nccl_check.cc)
kolo_configure_target(nccl_check)
target_link_libraries(nccl_check PRIVATE kolo_test_support)
add_test(NAME nccl_check COMMAND nccl_check)
set_tests_properties(nccl_check PROPERTIES TIMEOUT 300 LABELS gpu SKIP_RETURN_CODE 77
  RUN_SERIAL ON)
if(NOT KOLO_HAS_CUDA)
  return()
endif()
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
add_library(device_check_objects OBJECT
  gpu/device_check.cc
  gpu/measure.cc
  gpu/memory.cc
  gpu/operations.cc)
kolo_configure_target(device_check_objects)
target_link_libraries(device_check_objects PUBLIC
  kolo_test_support CLI11::CLI11 nlohmann_json::nlohmann_json)
add_executable(device_check)
target_link_libraries(device_check PRIVATE device_check_objects)
add_test(NAME device_check COMMAND device_check)
set_tests_properties(device_check PROPERTIES TIMEOUT 300 LABELS gpu SKIP_RETURN_CODE 77
  RUN_SERIAL ON)
