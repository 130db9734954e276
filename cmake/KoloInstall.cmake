# Installation and export: another project says find_package(kolo) and links kolo::kolo or
# kolo::torch. Each has an export file of its own, so that kolo::kolo asks for no LibTorch.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kolo)

install(TARGETS kolo EXPORT kolo-core INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT kolo-core NAMESPACE kolo:: FILE kolo-core.cmake DESTINATION ${_package_dir})
install(DIRECTORY runtime/include/kolo bindings/include/kolo
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN torch EXCLUDE PATTERN torch.h EXCLUDE
  PATTERN c10d.h EXCLUDE)
if(KOLO_HAS_TORCH)
  install(TARGETS kolo_torch EXPORT kolo-torch INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT kolo-torch NAMESPACE kolo:: FILE kolo-torch.cmake DESTINATION ${_package_dir})
  install(FILES bindings/include/kolo/torch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kolo)
  if(KOLO_HAS_C10D)
    install(FILES bindings/include/kolo/c10d.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kolo)
  endif()
  if(NOT KOLO_ACCELERATOR)
    set(_left_out REGEX "/(accelerator|accelerator_config|console|prepared|prepared_loader|schedulers|settings)\\.h$" EXCLUDE)
  endif()
  install(DIRECTORY bindings/include/kolo/torch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kolo
    FILES_MATCHING PATTERN "*.h" ${_left_out})
  install(FILES cmake/FindKoloTorch.cmake DESTINATION ${_package_dir})
endif()

# For C and what calls C: pkg-config, from wherever the files are moved to; where a distribution gives
# absolute folders, from there.
file(RELATIVE_PATH prefix_from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pkgconfig "${prefix_from_pkgconfig}")
set(KOLO_PKGCONFIG_PREFIX "\${pcfiledir}/${prefix_from_pkgconfig}")
foreach(folder LIBDIR INCLUDEDIR)
  set(KOLO_PKGCONFIG_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(KOLO_PKGCONFIG_${folder} "${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(KOLO_PKGCONFIG_PREFIX "${CMAKE_INSTALL_PREFIX}")
endif()
configure_file(cmake/kolo.pc.in kolo.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kolo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Out of this build, too: find_package takes -D kolo_DIR=<its folder>.
export(EXPORT kolo-core NAMESPACE kolo:: FILE ${CMAKE_CURRENT_BINARY_DIR}/kolo-core.cmake)
if(KOLO_HAS_TORCH)
  export(EXPORT kolo-torch NAMESPACE kolo:: FILE ${CMAKE_CURRENT_BINARY_DIR}/kolo-torch.cmake)
  configure_file(cmake/FindKoloTorch.cmake FindKoloTorch.cmake COPYONLY)
endif()

# What messages and headers name: docs/…, examples/….
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} USE_SOURCE_PERMISSIONS)
if(KOLO_BUILD_TOOLS OR KOLO_BUILD_TESTS)
  install(PROGRAMS tools/timeline DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME kolo-timeline)
  install(DIRECTORY tools/flight DESTINATION ${CMAKE_INSTALL_DATADIR}/kolo FILES_MATCHING PATTERN *.py)
endif()

configure_package_config_file(cmake/koloConfig.cmake.in koloConfig.cmake
  INSTALL_DESTINATION ${_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(koloConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/koloConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/koloConfigVersion.cmake
  DESTINATION ${_package_dir})
