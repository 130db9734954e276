# Options, and what all our own targets are compiled with.
option(KOLO_BUILD_TESTS "Build the tests, and the tools and examples that they run"
  ${PROJECT_IS_TOP_LEVEL})
option(KOLO_BUILD_TOOLS "Build kolo-run, kolo-info, kolo-perf and the like" ${PROJECT_IS_TOP_LEVEL})
option(KOLO_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(KOLO_ACCELERATOR
  "Build the Accelerator, its settings, the console and the schedulers into kolo::torch" ON)
option(KOLO_UNITY_BUILD
  "Compile sources together, in a part of the time: kolo::torch in groups, a program on it at once, the core and other tests by eights"
  ON)
option(KOLO_WARNINGS_AS_ERRORS "Treat warnings of kolo's own code as errors, as CI does" OFF)
option(KOLO_SELF_CONTAINED
  "For a Python wheel that brings UCX and its like (tools/wheel): look for them beside itself alone" OFF)
set(KOLO_TORCH_ROOT "" CACHE PATH
  "LibTorch: site-packages/torch of a wheel, or an unzipped libtorch; empty: tools/setup's")
set(KOLO_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize=")
set(KOLO_CUDA_ARCHITECTURES 80 90 100 CACHE STRING
  "GPUs to compile for, as 80;90;100; the newest as PTX too, for those that come after it")
# AUTO: if it is found; ON: required; OFF: without.
foreach(part MPI PMIX TORCH PYTHON GLOO CUDA NCCL)
  set(KOLO_WITH_${part} AUTO CACHE STRING "Build the ${part} part: AUTO, ON or OFF")
  set_property(CACHE KOLO_WITH_${part} PROPERTY STRINGS AUTO ON OFF)
  if(NOT KOLO_WITH_${part} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "KOLO_WITH_${part} is '${KOLO_WITH_${part}}'; it takes AUTO, ON or OFF")
  endif()
endforeach()

if(NOT KOLO_ACCELERATOR AND (KOLO_BUILD_TESTS OR KOLO_BUILD_EXAMPLES))
  message(FATAL_ERROR "Tests and examples need KOLO_ACCELERATOR=ON; leave them out (preset install)")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  else()
    set(CMAKE_BUILD_TYPE Release)  # of kolo; that of the project around it is its own
  endif()
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# What is installed finds its neighbours wherever it lies, and UCX and LibTorch where they were.
set(CMAKE_INSTALL_RPATH $ORIGIN $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
if(KOLO_SELF_CONTAINED)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH OFF)
  # DT_RPATH, which also holds for the libraries that the copied ones need.
  add_link_options(LINKER:--disable-new-dtags)
endif()

function(kolo_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  # Options are structs with designated initialisers, which leave members out on purpose; GCC 12
  # warns of overlaps in std::string and overflows in std::vector that are none (PR 105329, 107852).
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
    -Wno-missing-field-initializers -Wswitch-enum
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow>"
    # From 128 MiB on GCC looks for memory to use again, a quarter of its time: later, then.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>
    $<$<BOOL:${KOLO_WARNINGS_AS_ERRORS}>:-Werror>
    "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
  if(KOLO_SANITIZE)
    target_compile_options(${target} PUBLIC
      -fsanitize=${KOLO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${KOLO_SANITIZE})
  endif()
endfunction()

# Gives a program private sources of the core, named below runtime/, which the library hides: the
# objects that are the library's own.
function(kolo_use_core_sources target)
  foreach(source IN LISTS ARGN)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/runtime/${source}
      TARGET_DIRECTORY kolo_objects PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    string(REPLACE "." "\\." pattern "/runtime/${source}")
    target_sources(${target} PRIVATE
      "$<FILTER:$<TARGET_OBJECTS:kolo_objects>,INCLUDE,${pattern}\\.o$>")
  endforeach()
endfunction()
