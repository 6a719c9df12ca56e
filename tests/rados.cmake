# Programs that start a Ceph cluster: their tests are one entry of ctest each (and take most of two
# processors).
function(fathom_rados_test name label)
  add_executable(${name} ${ARGN} ceph_cluster.cc)
  target_link_libraries(${name} PRIVATE fathom_pool_testing fathom_gateway fathom_base
                        ${FATHOM_LIBRADOS} GTest::gmock)
  target_compile_definitions(${name} PRIVATE FATHOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             FATHOM_PROGRAM="${CMAKE_BINARY_DIR}/fathom")
  add_dependencies(${name} fathom)
  add_test(NAME e2e.${name} COMMAND ${name})
  set_tests_properties(e2e.${name} PROPERTIES LABELS ${label} TIMEOUT 900 RUN_SERIAL ON)
endfunction()
if(FATHOM_LIBRADOS AND FATHOM_LIBRADOS_INCLUDE)
  fathom_rados_test(rados_test slow rados_test.cc rados_faults_test.cc rados_serve_test.cc)
  fathom_rados_test(rados_nightly_test nightly rados_nightly_test.cc)
endif()
