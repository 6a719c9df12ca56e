fathom_e2e(codec_example_test DEPS base)
target_compile_definitions(codec_example_test PRIVATE
                           FATHOM_CODEC_EXAMPLE="$<TARGET_FILE:codec_example>")
add_dependencies(codec_example_test codec_example)
if(NOT FATHOM_SANITIZE)  # the package's user would have to link the sanitizer too
  add_test(NAME e2e.CodecPackage.IsFoundAndBuiltWith
           COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${CMAKE_BINARY_DIR}
                   -DWORK=${CMAKE_BINARY_DIR}/codec_package
                   -P ${PROJECT_SOURCE_DIR}/cmake/check_codec_package.cmake)
  set_tests_properties(e2e.CodecPackage.IsFoundAndBuiltWith PROPERTIES TIMEOUT 300)
endif()
