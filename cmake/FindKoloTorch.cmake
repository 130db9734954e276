# Finds a LibTorch: target KoloTorch::torch (its CPU half), KoloTorch_VERSION, KoloTorch_ROOT;
# KoloTorch::torch_python where it is Python's; and
# KoloTorch::torch_cuda where it has a CUDA half that can be loaded, KoloTorch_CUDA_FOUND, and why or
# why not in KoloTorch_CUDA_REASON.
# The config file in PyPI's wheel demands a CUDA toolkit even of a program that never uses it.
#
# Looked for, in this order: -DKOLO_TORCH_ROOT (site-packages/torch of a wheel, or an unzipped
# libtorch); Torch_DIR, which is given to find_package(Torch) or was found by it; the virtual
# environment that kolo's tools/setup makes; CMAKE_PREFIX_PATH; KoloTorch_HINT; Python's own torch.

set(KoloTorch_places "")
if(KOLO_TORCH_ROOT)
  set(KoloTorch_places ${KOLO_TORCH_ROOT})
else()
  get_filename_component(kolo_tree "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
  file(GLOB KoloTorch_places "${kolo_tree}/build/venv/lib/python3*/site-packages/torch")
  if(Torch_DIR)
    get_filename_component(more "${Torch_DIR}/../../.." ABSOLUTE)
    list(PREPEND KoloTorch_places "${more}")
  endif()
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    file(GLOB more "${prefix}" "${prefix}/libtorch" "${prefix}/lib/python3*/site-packages/torch")
    list(APPEND KoloTorch_places ${more})
  endforeach()
  list(APPEND KoloTorch_places ${KoloTorch_HINT})
  # Where it would be imported from, without the seconds that importing it takes.
  find_program(KoloTorch_PYTHON NAMES python3)
  mark_as_advanced(KoloTorch_PYTHON)
  if(KoloTorch_PYTHON)
    execute_process(COMMAND ${KoloTorch_PYTHON} -c
      "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s and s.origin else '', end='')"
      OUTPUT_VARIABLE more ERROR_QUIET)
    list(APPEND KoloTorch_places ${more})
  endif()
endif()

unset(KoloTorch_ROOT)
foreach(place IN LISTS KoloTorch_places)
  if(EXISTS "${place}/include/torch/csrc/api/include/torch/torch.h"
     AND EXISTS "${place}/lib/libtorch_cpu.so" AND EXISTS "${place}/lib/libc10.so")
    set(KoloTorch_ROOT "${place}")
    break()
  endif()
endforeach()

set(KoloTorch_REASON "")
if(NOT KoloTorch_ROOT AND KOLO_TORCH_ROOT)
  set(KoloTorch_REASON "KOLO_TORCH_ROOT=${KOLO_TORCH_ROOT} is no LibTorch: it lacks lib/libtorch_cpu.so, \
lib/libc10.so or include/torch/csrc/api/include/torch/torch.h. Name site-packages/torch or an unzipped libtorch")
elseif(NOT KoloTorch_ROOT)
  set(KoloTorch_REASON "no LibTorch was found: give -DKOLO_TORCH_ROOT=<site-packages/torch or an unzipped libtorch>")
endif()

unset(KoloTorch_VERSION)
if(KoloTorch_ROOT)
  set(header "${KoloTorch_ROOT}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${header}")  # before 2.9
    set(header "${KoloTorch_ROOT}/include/torch/csrc/api/include/torch/version.h")
  endif()
  file(STRINGS "${header}" version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" version "${version}")
  string(REPLACE ";" "." KoloTorch_VERSION "${version}")
  # Archives of before 2.7 exist with std::string's layout of before GCC 5, which nothing else here
  # is built with: refused rather than left to the linker's riddles.
  set(config "${KoloTorch_ROOT}/share/cmake/Torch/TorchConfig.cmake")
  if(EXISTS "${config}")
    file(STRINGS "${config}" old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(old_abi)
      message(FATAL_ERROR "${KoloTorch_ROOT} is built with the old C++ ABI; take LibTorch's archive "
                          "with cxx11-abi in its name, or the wheel")
    endif()
  endif()
endif()

# What its CUDA half needs (cuDNN, NCCL, …) comes in packages of their own, all of which a program
# loads at its start, or does not start.
set(KoloTorch_CUDA_FOUND OFF)
set(KoloTorch_CUDA_REASON "this LibTorch is for CPUs alone")
if(KoloTorch_ROOT AND EXISTS "${KoloTorch_ROOT}/lib/libtorch_cuda.so"
   AND EXISTS "${KoloTorch_ROOT}/lib/libc10_cuda.so")
  execute_process(COMMAND ldd "${KoloTorch_ROOT}/lib/libtorch_cuda.so"
    OUTPUT_VARIABLE needed ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCHALL "[^\n\t ]+ => not found" lacking "${needed}")
  string(REPLACE " => not found" "" lacking "${lacking}")
  list(REMOVE_DUPLICATES lacking)
  list(JOIN lacking ", " lacking)
  if(failed)
    set(KoloTorch_CUDA_REASON "ldd cannot tell what its libtorch_cuda.so needs")
  elseif(lacking)
    set(KoloTorch_CUDA_REASON "its libtorch_cuda.so lacks ${lacking} (pip install torch, with all \
that it depends on)")
  else()
    set(KoloTorch_CUDA_FOUND ON)
    set(KoloTorch_CUDA_REASON "${KoloTorch_ROOT}/lib/libtorch_cuda.so")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(KoloTorch
  REQUIRED_VARS KoloTorch_ROOT VERSION_VAR KoloTorch_VERSION
  REASON_FAILURE_MESSAGE "${KoloTorch_REASON}")

if(KoloTorch_FOUND AND NOT TARGET KoloTorch::torch)
  set(names c10 torch_cpu)
  if(KoloTorch_CUDA_FOUND)
    list(APPEND names c10_cuda torch_cuda)
  endif()
  if(EXISTS "${KoloTorch_ROOT}/lib/libtorch_python.so")
    list(APPEND names torch_python)
  endif()
  foreach(name IN LISTS names)
    add_library(KoloTorch::${name} SHARED IMPORTED)
    set_target_properties(KoloTorch::${name} PROPERTIES
      IMPORTED_LOCATION "${KoloTorch_ROOT}/lib/lib${name}.so"
      INTERFACE_INCLUDE_DIRECTORIES
        "${KoloTorch_ROOT}/include;${KoloTorch_ROOT}/include/torch/csrc/api/include")
  endforeach()
  add_library(KoloTorch::torch INTERFACE IMPORTED)
  target_link_libraries(KoloTorch::torch INTERFACE KoloTorch::torch_cpu KoloTorch::c10)
  target_compile_features(KoloTorch::torch INTERFACE cxx_std_20)
  # A wheel's libtorch_cpu needs libraries out of sibling wheels; it finds them by its own rpath at
  # run time, and the linker by ours.
  file(GLOB siblings "${KoloTorch_ROOT}/../nvidia/*/lib")
  foreach(folder IN ITEMS "${KoloTorch_ROOT}/lib" LISTS siblings)
    target_link_options(KoloTorch::torch INTERFACE "LINKER:-rpath-link,${folder}")
  endforeach()
endif()
