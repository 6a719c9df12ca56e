# The codec as a package to be found by other projects (examples/codec/README.md): its two static
# libraries and their headers, component `codec`. What they are built on must be installed where they
# are used.
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fathom_codec)
set_target_properties(fathom_recipe PROPERTIES EXPORT_NAME codec)
set_target_properties(fathom_base PROPERTIES EXPORT_NAME base)
install(TARGETS fathom_recipe fathom_base EXPORT fathom_codec
        ARCHIVE COMPONENT codec
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fathom COMPONENT codec)
install(EXPORT fathom_codec FILE fathom_codec-targets.cmake NAMESPACE fathom::
        DESTINATION ${package_dir} COMPONENT codec)
file(WRITE ${CMAKE_BINARY_DIR}/fathom_codec-config.cmake [[
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(spdlog)
find_dependency(prometheus-cpp COMPONENTS core)
find_dependency(OpenSSL COMPONENTS Crypto)
include(${CMAKE_CURRENT_LIST_DIR}/fathom_codec-targets.cmake)
]])
install(FILES ${CMAKE_BINARY_DIR}/fathom_codec-config.cmake DESTINATION ${package_dir}
        COMPONENT codec)
