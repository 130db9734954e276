# How tests are declared: one executable with a test of CTest for each of its own, or one under
# mpirun. Included by tests/CMakeLists.txt.
# GCC's ThreadSanitizer cannot start where the kernel randomises more than 28 bits of an address.
if(KOLO_SANITIZE MATCHES thread AND EXISTS /proc/sys/vm/mmap_rnd_bits)
  file(READ /proc/sys/vm/mmap_rnd_bits address_bits)
  if(address_bits GREATER 28)
    set(CMAKE_CROSSCOMPILING_EMULATOR setarch;-R)
  endif()
endif()

# kolo_add_test(<name> SOURCES <files> [LABELS <labels>] [LIBRARIES <targets>] [TIMEOUT <seconds>]
#               [TORCH] [COMPUTES])
# One executable; each of its tests is a test of CTest, as list_tests.cmake says. With TORCH it is
# linked to kolo::torch, as a user's program is, and left out of a build without LibTorch; else it
# holds kolo's objects and sees what the library hides; its sources are compiled by eights. COMPUTES:
# the tests' own code takes long, so it is optimised, too.
function(kolo_add_test name)
  cmake_parse_arguments(ARG "TORCH;COMPUTES" "TIMEOUT" "SOURCES;LABELS;LIBRARIES" ${ARGN})
  if(ARG_TORCH AND NOT KOLO_HAS_TORCH)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(ARG_TORCH)
    kolo_add_torch_program(${name} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE GTest::gmock)
    list(APPEND ARG_LABELS torch)
  else()
    add_executable(${name} ${ARG_SOURCES})
    kolo_configure_target(${name})
    target_link_libraries(${name} PRIVATE kolo_test_support)
    if(ARG_COMPUTES)
      target_compile_options(${name} PRIVATE ${KOLO_COMPUTING_TEST_OPTIONS})
    else()
      target_compile_options(${name} PRIVATE ${KOLO_TEST_OPTIONS})
      target_precompile_headers(${name} REUSE_FROM kolo_test_header)
      # Most of a test's time is what it instantiates of headers, which several share then.
      set_target_properties(${name} PROPERTIES
        UNITY_BUILD ${KOLO_UNITY_BUILD} UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 8)
    endif()
  endif()
  target_link_libraries(${name} PRIVATE GTest::gtest_main ${ARG_LIBRARIES})
  if(inprocess IN_LIST ARG_LABELS)
    add_dependencies(inprocess_tests ${name})
  endif()
  # UCX hooks madvise(), which a thread calls when it ends; ThreadSanitizer has given up that thread
  # by then and crashes in the hook's lock.
  set(environment "")
  if(KOLO_SANITIZE MATCHES thread)
    set(environment UCX_MEM_MMAP_HOOK_MODE=none)
  endif()
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${name}_list.cmake)
  string(REPLACE ";" "\\;" launcher "${CMAKE_CROSSCOMPILING_EMULATOR}")
  string(REPLACE ";" "\\;" labels "${ARG_LABELS}")
  add_custom_command(TARGET ${name} POST_BUILD BYPRODUCTS ${list} VERBATIM COMMAND ${CMAKE_COMMAND}
    "-DPROGRAM=$<TARGET_FILE:${name}>" "-DLAUNCHER=${launcher}" "-DOUT=${list}"
    "-DTIMEOUT=${ARG_TIMEOUT}" "-DLABELS=${labels}" "-DENVIRONMENT=${environment}"
    -P ${CMAKE_CURRENT_SOURCE_DIR}/list_tests.cmake)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_tests.cmake
    "if(EXISTS [=[${list}]=])\n"
    "  include([=[${list}]=])\n"
    "else()\n"
    "  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY
    TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_tests.cmake)
endfunction()

# kolo_add_mpi_test(<name> PROGRAM <target> NP <ranks> [ARGS <arguments>] [TIMEOUT <seconds>]
#                   [LABELS <labels>])
# The program under mpirun, as one test of CTest. Nothing without an MPI or without the program.
function(kolo_add_mpi_test name)
  cmake_parse_arguments(ARG "" "PROGRAM;NP;TIMEOUT" "ARGS;LABELS" ${ARGN})
  if(NOT KOLO_HAS_MPI OR NOT TARGET ${ARG_PROGRAM})
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/support/mpirun -np ${ARG_NP}
    $<TARGET_FILE:${ARG_PROGRAM}> ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "mpi;${ARG_LABELS}"
    PROCESSORS ${ARG_NP} ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()
