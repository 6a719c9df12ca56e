fathom_e2e(cli_program_test DEPS base)
add_dependencies(cli_program_test fathom)
# A server started by ./dev up, asked one question, stopped. Only where ./dev builds: elsewhere it
# would build the whole tree a second time.
if(CMAKE_BINARY_DIR STREQUAL "${PROJECT_SOURCE_DIR}/build/release")
  add_test(NAME e2e.dev_up COMMAND ${PROJECT_SOURCE_DIR}/dev up --once)
  set_tests_properties(e2e.dev_up PROPERTIES RESOURCE_LOCK build_folder TIMEOUT 600
                       PASS_REGULAR_EXPRESSION "first answer: [A-Za-z]")
endif()
