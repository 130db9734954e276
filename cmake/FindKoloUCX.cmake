# UCX: from -DKOLO_UCX_ROOT=<prefix> (an installation, or libucx in the PyPI wheel libucx-cu13), or
# by pkg-config. Makes the target kolo_ucx.
set(KOLO_UCX_ROOT "" CACHE PATH "Prefix of UCX; empty: by pkg-config")
if(KOLO_UCX_ROOT)
  find_path(KOLO_UCX_INCLUDE_DIR ucp/api/ucp.h HINTS ${KOLO_UCX_ROOT}/include NO_DEFAULT_PATH)
  find_library(KOLO_UCP_LIBRARY NAMES ucp libucp.so.0 HINTS ${KOLO_UCX_ROOT}/lib NO_DEFAULT_PATH)
  find_library(KOLO_UCS_LIBRARY NAMES ucs libucs.so.0 HINTS ${KOLO_UCX_ROOT}/lib NO_DEFAULT_PATH)
else()
  pkg_check_modules(KOLO_UCX_PC QUIET ucx)
  if(KOLO_UCX_PC_FOUND)
    find_path(KOLO_UCX_INCLUDE_DIR ucp/api/ucp.h HINTS ${KOLO_UCX_PC_INCLUDE_DIRS})
    find_library(KOLO_UCP_LIBRARY ucp HINTS ${KOLO_UCX_PC_LIBRARY_DIRS})
    find_library(KOLO_UCS_LIBRARY ucs HINTS ${KOLO_UCX_PC_LIBRARY_DIRS})
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(KoloUCX
  REQUIRED_VARS KOLO_UCP_LIBRARY KOLO_UCS_LIBRARY KOLO_UCX_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install Debian's libucx-dev, or give -DKOLO_UCX_ROOT=<prefix>")
if(KoloUCX_FOUND AND NOT TARGET kolo_ucx)
  add_library(kolo_ucx INTERFACE)
  target_include_directories(kolo_ucx SYSTEM INTERFACE ${KOLO_UCX_INCLUDE_DIR})
  target_link_libraries(kolo_ucx INTERFACE ${KOLO_UCP_LIBRARY} ${KOLO_UCS_LIBRARY})
endif()
