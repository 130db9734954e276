# What kolo builds on, each through its own package. Sets KOLO_PRIVATE_DEPENDENCIES for the core,
# and KOLO_HAS_MPI, KOLO_HAS_PMIX, KOLO_HAS_CUDA, KOLO_HAS_NCCL, KOLO_HAS_TORCH, KOLO_HAS_C10D,
# KOLO_HAS_PYTHON and KOLO_HAS_GLOO with a reason each for the summary.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(Protobuf REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_package(KoloUCX REQUIRED)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Vectors of SVE have no size that is known here, so kernels that keep pairs of them are NEON's.
  set_property(TARGET PkgConfig::HWY APPEND PROPERTY
    INTERFACE_COMPILE_DEFINITIONS "HWY_DISABLED_TARGETS=HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128")
endif()

set(KOLO_PRIVATE_DEPENDENCIES
  Threads::Threads fmt::fmt spdlog::spdlog protobuf::libprotobuf-lite
  PkgConfig::HWLOC PkgConfig::HWY kolo_ucx)

# An optional part: its state is <prefix>, the reason <prefix>_REASON.
macro(kolo_optional_part prefix option found reason_found reason_missing)
  set(${prefix} OFF)
  if("${${option}}" STREQUAL "OFF")
    set(${prefix}_REASON "switched off by ${option}=OFF")
  elseif(${found})
    set(${prefix} ON)
    set(${prefix}_REASON "${reason_found}")
  elseif("${${option}}" STREQUAL "ON")
    message(FATAL_ERROR "${option}=ON, but ${reason_missing}")
  else()
    set(${prefix}_REASON "${reason_missing}")
  endif()
endmacro()

if(NOT KOLO_WITH_MPI STREQUAL "OFF")
  find_package(MPI QUIET COMPONENTS C)
endif()
kolo_optional_part(KOLO_HAS_MPI KOLO_WITH_MPI "MPI_C_FOUND"
  "MPI ${MPI_C_VERSION}, ${MPI_C_COMPILER}"
  "no MPI was found (Debian: libopenmpi-dev; elsewhere: -DMPI_C_COMPILER=<its mpicc>)")

if(NOT KOLO_WITH_PMIX STREQUAL "OFF")
  pkg_check_modules(PMIX QUIET IMPORTED_TARGET pmix)
endif()
kolo_optional_part(KOLO_HAS_PMIX KOLO_WITH_PMIX "PMIX_FOUND"
  "PMIx ${PMIX_VERSION}"
  "no PMIx was found (Debian: libpmix-dev)")

# A library that kolo-perf compares with; kolo itself never uses it.
if(NOT KOLO_WITH_GLOO STREQUAL "OFF")
  find_package(Gloo QUIET)
endif()
kolo_optional_part(KOLO_HAS_GLOO KOLO_WITH_GLOO "Gloo_FOUND"
  "for kolo-perf --compare, ${Gloo_DIR}"
  "no gloo was found (Debian: libgloo-dev)")

# 12.1: kernels take 32 KiB of parameters. The host's code uses the runtime alone, linked statically;
# the driver is looked for when a program runs.
if(NOT KOLO_WITH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.1 QUIET)
endif()
set(_cuda_usable OFF)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static)
  set(_cuda_usable ON)
endif()
kolo_optional_part(KOLO_HAS_CUDA KOLO_WITH_CUDA "_cuda_usable"
  "${CUDAToolkit_VERSION}, ${CUDAToolkit_NVCC_EXECUTABLE}, for ${KOLO_CUDA_ARCHITECTURES}"
  "no CUDA toolkit of 12.1 or newer with nvcc was found (-DCUDAToolkit_ROOT=<its folder>)")
if(KOLO_HAS_CUDA)
  include(KoloCuda)
endif()

# pip builds against the torch of the Python that it installs for.
if(SKBUILD AND NOT KOLO_TORCH_ROOT)
  execute_process(COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/bindings/python/find_torch.py
    OUTPUT_VARIABLE KOLO_TORCH_ROOT ERROR_VARIABLE reason RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${reason}")
  endif()
endif()
if(NOT KOLO_WITH_TORCH STREQUAL "OFF")
  find_package(KoloTorch QUIET)
  if(KOLO_TORCH_ROOT AND NOT KoloTorch_FOUND)
    message(FATAL_ERROR "${KoloTorch_REASON}")  # whoever names one wants it
  endif()
endif()
kolo_optional_part(KOLO_HAS_TORCH KOLO_WITH_TORCH "KoloTorch_FOUND"
  "${KoloTorch_VERSION} from ${KoloTorch_ROOT}" "${KoloTorch_REASON}, or run tools/setup, which brings it")
if(KOLO_HAS_TORCH)
  include(KoloTorch)
endif()
# torch's c10d changes its interface to backends now and then; from 2.11 on it is the one that
# bindings/c10d has.
set(KOLO_HAS_C10D OFF)
set(KOLO_HAS_C10D_REASON "it needs LibTorch 2.11 or newer, with c10d")
if(KOLO_HAS_TORCH AND KoloTorch_VERSION VERSION_GREATER_EQUAL 2.11
   AND EXISTS "${KoloTorch_ROOT}/include/torch/csrc/distributed/c10d/Backend.hpp")
  set(KOLO_HAS_C10D ON)
  set(KOLO_HAS_C10D_REASON "<kolo/c10d.h>")
endif()

# The Python package is for the Python whose torch this is: that of the environment around it. pip
# installs it, and tests use it; a build for C++ alone does without.
set(python_reason "${KOLO_HAS_C10D_REASON}")
set(python_found OFF)
if(KOLO_WITH_PYTHON STREQUAL "AUTO" AND NOT KOLO_BUILD_TESTS)
  set(python_reason "pip builds it, and so do tests; here by -DKOLO_WITH_PYTHON=ON")
elseif(KOLO_HAS_C10D AND NOT KOLO_WITH_PYTHON STREQUAL "OFF")
  get_filename_component(environment "${KoloTorch_ROOT}/../../../.." ABSOLUTE)
  if(NOT Python_EXECUTABLE AND EXISTS "${environment}/bin/python3")
    set(Python_EXECUTABLE "${environment}/bin/python3")
  endif()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  set(python_reason "no Python of 3.10 or newer with its headers was found (Debian: python3-dev; \
elsewhere: -DPython_EXECUTABLE=<the one that has torch>)")
  if(Python_FOUND AND EXISTS "${KoloTorch_ROOT}/_C.${Python_SOABI}.so")
    set(python_found ON)
    set(python_reason "${Python_VERSION}, ${Python_EXECUTABLE}")
  elseif(Python_FOUND)
    set(python_reason "${KoloTorch_ROOT} is not torch of Python ${Python_VERSION} (${Python_EXECUTABLE}): \
it has no _C.${Python_SOABI}.so; give -DPython_EXECUTABLE=<the one that has this torch>")
  endif()
endif()
kolo_optional_part(KOLO_HAS_PYTHON KOLO_WITH_PYTHON "python_found" "${python_reason}"
  "${python_reason}")

# NCCL is loaded when it is asked for; a build needs its header, and CUDA. Where no system has it,
# the wheel that LibTorch's wheel depends on does.
if(KOLO_HAS_CUDA AND NOT KOLO_WITH_NCCL STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  set(nccl_wheel "")
  if(KoloTorch_ROOT)
    get_filename_component(nccl_wheel "${KoloTorch_ROOT}/../nvidia/nccl" ABSOLUTE)
  endif()
  find_path(KOLO_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
    PATHS "${nccl_wheel}/include")
  find_library(KOLO_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR}
    PATHS "${nccl_wheel}/lib")
endif()
set(nccl_found OFF)
if(KOLO_HAS_CUDA AND KOLO_NCCL_INCLUDE_DIR AND KOLO_NCCL_LIBRARY)
  set(nccl_found ON)
endif()
kolo_optional_part(KOLO_HAS_NCCL KOLO_WITH_NCCL "nccl_found"
  "${KOLO_NCCL_LIBRARY}"
  "it needs CUDA, nccl.h and libnccl.so.2 (-DKOLO_NCCL_INCLUDE_DIR=…, -DKOLO_NCCL_LIBRARY=…)")

# CUDA tensors need both: a core that takes CUDA memory, and LibTorch's CUDA half.
set(KOLO_HAS_TORCH_CUDA OFF)
if(NOT KOLO_HAS_TORCH)
  set(KOLO_HAS_TORCH_CUDA_REASON "there is no LibTorch")
elseif(NOT KOLO_HAS_CUDA)
  set(KOLO_HAS_TORCH_CUDA_REASON "kolo itself is built without CUDA")
else()
  set(KOLO_HAS_TORCH_CUDA ${KoloTorch_CUDA_FOUND})
  set(KOLO_HAS_TORCH_CUDA_REASON "${KoloTorch_CUDA_REASON}")
endif()
