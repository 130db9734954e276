# What includes LibTorch. <torch/torch.h> takes 12 to 15 seconds a translation unit, so it is
# precompiled, once for kolo_torch and once for the programs in this build. Their time is LibTorch's
# and kolo's, so they are optimised less: GCC takes 8 seconds for each instead of 17.
# (So it sees less of LibTorch's code, and takes some for uninitialised that is not.)
set(KOLO_TORCH_PROGRAM_OPTIONS
  $<$<CONFIG:Release>:-O1> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# GCC takes a precompiled header only under the flags and macros that it was made with: hence no
# macros here, no export macro in the libraries, and -fPIC for the programs, too.
foreach(header kolo_torch_header kolo_torch_program_header)
  add_library(${header} OBJECT ${PROJECT_SOURCE_DIR}/bindings/torch/torch_header.cc)
  kolo_configure_target(${header})
  target_link_libraries(${header} PRIVATE KoloTorch::torch)
  # LibTorch's include folder holds a {fmt} of its own, newer than the system's and without a
  # library.
  target_compile_definitions(${header} PRIVATE FMT_HEADER_ONLY)
  target_precompile_headers(${header} PRIVATE <torch/torch.h>)
endforeach()
target_compile_options(kolo_torch_program_header PRIVATE ${KOLO_TORCH_PROGRAM_OPTIONS})

function(kolo_use_torch target)
  target_link_libraries(${target} PUBLIC KoloTorch::torch)
  target_compile_definitions(${target} PRIVATE FMT_HEADER_ONLY)
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_precompile_headers(${target} REUSE_FROM kolo_torch_header)
    return()
  endif()
  target_compile_options(${target} PRIVATE ${KOLO_TORCH_PROGRAM_OPTIONS})
  target_precompile_headers(${target} REUSE_FROM kolo_torch_program_header)
  # The precompiled header leaves its templates to be instantiated in each translation unit. This takes
  # longer than most sources do, so a program's sources are one unit.
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${KOLO_UNITY_BUILD} UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 0)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# A program on kolo::torch (examples, tools): kolo_add_torch_program(<target> <source>…)
function(kolo_add_torch_program target)
  add_executable(${target} ${ARGN})
  kolo_configure_target(${target})
  target_link_libraries(${target} PRIVATE kolo::torch)
  kolo_use_torch(${target})
endfunction()
