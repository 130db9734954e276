# Installation and export: another project says find_package(kolo) and links kolo::kolo or
# kolo::torch.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kolo)

set(_targets kolo)
if(KOLO_HAS_TORCH)
  list(APPEND _targets kolo_torch)
endif()
install(TARGETS ${_targets} EXPORT koloTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY runtime/include/kolo bindings/include/kolo
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT koloTargets NAMESPACE kolo:: DESTINATION ${_package_dir})
configure_package_config_file(cmake/koloConfig.cmake.in koloConfig.cmake
  INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(koloConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/koloConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/koloConfigVersion.cmake
  cmake/FindKoloTorch.cmake
  DESTINATION ${_package_dir})
