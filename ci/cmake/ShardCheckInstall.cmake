# Installation: libraries, headers, layout tables, the program, and the package that find_package(ShardCheck
# COMPONENTS core testing) reads. `core` is the library; `testing` adds tolerance, mutators and properties: the
# laws for a user's own test program.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(SHARDCHECK_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ShardCheck)

# shardcheck_install_component(NAME TARGETS...): installs the targets and exports them as ShardCheck::*.
function(shardcheck_install_component name)
  install(TARGETS ${ARGN} EXPORT ShardCheck_${name}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(EXPORT ShardCheck_${name} NAMESPACE ShardCheck:: FILE ShardCheck-${name}.cmake
          DESTINATION ${SHARDCHECK_PACKAGE_DIR})
endfunction()

set_target_properties(shardcheck_core PROPERTIES EXPORT_NAME core)
set_target_properties(shardcheck_tolerance PROPERTIES EXPORT_NAME tolerance)
set_target_properties(shardcheck_mutators PROPERTIES EXPORT_NAME mutators)
set_target_properties(shardcheck_properties PROPERTIES EXPORT_NAME testing)
set_target_properties(shardcheck PROPERTIES EXPORT_NAME program)
if(NOT TARGET ShardCheck::testing)
  add_library(ShardCheck::testing ALIAS shardcheck_properties)
endif()

shardcheck_install_component(core shardcheck_core shardcheck)
shardcheck_install_component(testing shardcheck_tolerance shardcheck_mutators shardcheck_properties)

foreach(room lib tolerance mutators properties)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room}/include/shardcheck DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h")
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lib/layouts/ DESTINATION ${CMAKE_INSTALL_DATADIR}/shardcheck/layouts
        FILES_MATCHING PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ShardCheckConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/ShardCheckConfig.cmake
                              INSTALL_DESTINATION ${SHARDCHECK_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ShardCheckConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ShardCheckConfig.cmake ${PROJECT_BINARY_DIR}/ShardCheckConfigVersion.cmake
        DESTINATION ${SHARDCHECK_PACKAGE_DIR})
