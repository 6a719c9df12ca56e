# The objects of src/kernels/x86/level keep to their own namespaces (level/vec.h says why).
if(TARGET fathom_kernels_avx2 AND NOT FATHOM_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  foreach(level avx2 avx512)
    add_test(NAME x86_level_symbols.${level}
             COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_level_symbols.py
                     ${CMAKE_NM} ${level} $<TARGET_OBJECTS:fathom_kernels_${level}>
             COMMAND_EXPAND_LISTS)
  endforeach()
endif()
