# LibTorch's CPU half, from -DKOLO_TORCH_ROOT=<root> (an unzipped libtorch, or torch/ of a wheel), or
# the virtual environment that tools/setup makes. Makes the target kolo_libtorch. The package file of
# the wheel itself asks for the CUDA toolkit, which nobody needs to train on CPUs.
set(KOLO_TORCH_ROOT "" CACHE PATH "Root of LibTorch; empty: the environment of tools/setup")
set(_kolo_torch_hints ${KOLO_TORCH_ROOT})
if(NOT KOLO_TORCH_ROOT)
  foreach(_base ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/.. ${CMAKE_SOURCE_DIR}/build)
    file(GLOB _found ${_base}/venv/lib/python3*/site-packages/torch)
    list(APPEND _kolo_torch_hints ${_found})
  endforeach()
  list(APPEND _kolo_torch_hints ${CMAKE_PREFIX_PATH})
endif()
find_path(KOLO_TORCH_INCLUDE_DIR torch/csrc/autograd/autograd.h PATH_SUFFIXES include
  HINTS ${_kolo_torch_hints} NO_DEFAULT_PATH)
if(KOLO_TORCH_INCLUDE_DIR)
  get_filename_component(_kolo_torch_prefix ${KOLO_TORCH_INCLUDE_DIR} DIRECTORY)
endif()
find_library(KOLO_TORCH_CPU_LIBRARY torch_cpu HINTS ${_kolo_torch_prefix}/lib NO_DEFAULT_PATH)
find_library(KOLO_C10_LIBRARY c10 HINTS ${_kolo_torch_prefix}/lib NO_DEFAULT_PATH)
if(EXISTS ${_kolo_torch_prefix}/version.py)
  file(STRINGS ${_kolo_torch_prefix}/version.py _line REGEX "^__version__")
  string(REGEX REPLACE ".*['\"]([^'\"]+)['\"].*" "\\1" KoloTorch_VERSION "${_line}")
elseif(EXISTS ${_kolo_torch_prefix}/build-version)
  file(STRINGS ${_kolo_torch_prefix}/build-version KoloTorch_VERSION LIMIT_COUNT 1)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(KoloTorch
  REQUIRED_VARS KOLO_TORCH_CPU_LIBRARY KOLO_C10_LIBRARY KOLO_TORCH_INCLUDE_DIR
  VERSION_VAR KoloTorch_VERSION
  REASON_FAILURE_MESSAGE "run tools/setup, or give -DKOLO_TORCH_ROOT=<libtorch>")
if(KoloTorch_FOUND AND NOT TARGET kolo_libtorch)
  # libtorch_cpu of the wheel is linked to CUPTI and the CUDA runtime, which are wheels beside it.
  file(GLOB _kolo_nvidia_dirs ${_kolo_torch_prefix}/../nvidia/*/lib)
  set(_kolo_torch_dirs ${_kolo_torch_prefix}/lib ${_kolo_nvidia_dirs})
  list(TRANSFORM _kolo_torch_dirs PREPEND "LINKER:-rpath-link," OUTPUT_VARIABLE _kolo_rpath_link)
  list(TRANSFORM _kolo_torch_dirs PREPEND "LINKER:-rpath," OUTPUT_VARIABLE _kolo_rpath)
  add_library(kolo_libtorch INTERFACE)
  target_include_directories(kolo_libtorch SYSTEM INTERFACE
    ${KOLO_TORCH_INCLUDE_DIR} ${KOLO_TORCH_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(kolo_libtorch INTERFACE ${KOLO_TORCH_CPU_LIBRARY} ${KOLO_C10_LIBRARY})
  target_link_options(kolo_libtorch INTERFACE ${_kolo_rpath_link} ${_kolo_rpath})
endif()
