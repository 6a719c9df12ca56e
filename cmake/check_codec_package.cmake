# Installs the codec's package and builds examples/codec against it, as a project of its own:
# cmake -DSOURCE=… -DBUILD=… -DWORK=… -P check_codec_package.cmake
file(REMOVE_RECURSE ${WORK})
foreach(command
        "${CMAKE_COMMAND};--install;${BUILD};--component;codec;--prefix;${WORK}/installed"
        "${CMAKE_COMMAND};-S;${SOURCE}/examples/codec;-B;${WORK}/build;-G;Ninja;-DCMAKE_PREFIX_PATH=${WORK}/installed"
        "${CMAKE_COMMAND};--build;${WORK}/build")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(REMOVE_RECURSE ${WORK})
