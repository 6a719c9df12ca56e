# Shared build rules. One library and one unit-test program a folder: fathom_folder(NAME ...).

find_program(FATHOM_CCACHE ccache)
if(FATHOM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FATHOM_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror)
# Numbers are a contract (spec/cpu-kernels.md section 4): no contraction, no fast-math, anywhere.
add_compile_options(-ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-tsan)
endif()
find_program(FATHOM_MOLD mold)
if(FATHOM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
if(FATHOM_SANITIZE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # instrumented code confuses the analysis
  endif()
  add_compile_options(-fsanitize=${FATHOM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FATHOM_SANITIZE})
endif()

find_package(Threads REQUIRED)

# fathom_folder(NAME DEPS lib... PRIVATE lib... EXCLUDE regex)
# Builds lib fathom_NAME from every .cc of the folder that is not a test (nor matches EXCLUDE), and,
# with FATHOM_TESTS, NAME_test from every *_test.cc. DEPS are the folders below it; PRIVATE are third-party libraries.
# Target all_verify_interface_header_sets compiles every header alone; unit_tests builds the tests,
# which carry the label `unit`.
add_custom_target(unit_tests)
function(fathom_folder name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "DEPS;PRIVATE;TEST_PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$|/main\\.cc$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(ARG_EXCLUDE)
    list(FILTER tests EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  set(deps ${ARG_DEPS})
  list(TRANSFORM deps PREPEND fathom_)
  if(NOT sources)  # a folder of headers only
    add_library(fathom_${name} INTERFACE)
    target_include_directories(fathom_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(fathom_${name} INTERFACE ${deps} Threads::Threads)
    return()
  endif()
  add_library(fathom_${name} STATIC ${sources})
  target_include_directories(fathom_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS *.h)
  list(FILTER headers EXCLUDE REGEX "/testing/|/test_[a-z_]*\\.h$")  # for tests only
  if(ARG_EXCLUDE)
    list(FILTER headers EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  target_sources(fathom_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src
                 FILES ${headers})
  set_target_properties(fathom_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  target_link_libraries(fathom_${name} PUBLIC ${deps} Threads::Threads PRIVATE ${ARG_PRIVATE})
  if(FATHOM_TESTS AND tests)
    add_executable(${name}_test ${tests})
    find_package(GTest REQUIRED)
    find_library(FATHOM_RAPIDCHECK rapidcheck REQUIRED)
    target_link_libraries(${name}_test PRIVATE fathom_${name} ${ARG_TEST_PRIVATE}
                          GTest::gmock GTest::gtest_main ${FATHOM_RAPIDCHECK})
    target_compile_definitions(${name}_test PRIVATE FATHOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    add_dependencies(unit_tests ${name}_test)
    include(GoogleTest)
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
                         DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 900 LABELS unit
                         ENVIRONMENT "RC_PARAMS=seed=20261129")
  endif()
endfunction()
