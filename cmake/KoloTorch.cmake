# What includes LibTorch. <torch/torch.h> takes 12 to 15 seconds a translation unit, so it is
# precompiled once, and kolo_torch and each program in this build that includes it share that.

# GCC takes a precompiled header only under the flags and macros that it was made with: hence no
# macros here, no export macro in the libraries, and -fPIC for the programs, too.
add_library(kolo_torch_header OBJECT ${PROJECT_SOURCE_DIR}/bindings/torch/torch_header.cc)
kolo_configure_target(kolo_torch_header)
target_link_libraries(kolo_torch_header PRIVATE KoloTorch::torch)
# LibTorch's include folder holds a {fmt} of its own, newer than the system's and without a library.
target_compile_definitions(kolo_torch_header PRIVATE FMT_HEADER_ONLY)
target_precompile_headers(kolo_torch_header PRIVATE <torch/torch.h>)

function(kolo_use_torch target)
  target_link_libraries(${target} PUBLIC KoloTorch::torch)
  target_compile_definitions(${target} PRIVATE FMT_HEADER_ONLY)
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM kolo_torch_header)
endfunction()

# A program on kolo::torch (examples, tools): kolo_add_torch_program(<target> <source>…)
function(kolo_add_torch_program target)
  add_executable(${target} ${ARGN})
  kolo_configure_target(${target})
  target_link_libraries(${target} PRIVATE kolo::torch)
  kolo_use_torch(${target})
endfunction()
