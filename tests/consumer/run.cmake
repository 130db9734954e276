# Installs the build tree BUILD below WORK, then configures, builds and runs the project in this folder
# against it alone. Run by CTest: cmake -D BUILD=… -D WORK=… -D WITH_TORCH=… -D COMPILER=… -P run.cmake
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build
    -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER} -D WITH_TORCH=${WITH_TORCH})
run(${CMAKE_COMMAND} --build ${WORK}/build)
# Out of the build tree itself, and as a part of another project.
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/beside
    -D kolo_DIR=${BUILD} -D CMAKE_CXX_COMPILER=${COMPILER} -D WITH_TORCH=${WITH_TORCH})
run(${CMAKE_COMMAND} --build ${WORK}/beside)
run(${WORK}/beside/core_consumer)
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR}/around -B ${WORK}/around
    -D KOLO=${CMAKE_CURRENT_LIST_DIR}/../.. -D CMAKE_CXX_COMPILER=${COMPILER} -D WITH_TORCH=${WITH_TORCH})
# What installed programs and headers name is there, and they by their own names.
foreach(file README.md docs/launching.md docs/timeline.svg examples/mnist/digits.h)
  if(NOT EXISTS ${WORK}/prefix/share/doc/kolo/${file})
    message(FATAL_ERROR "share/doc/kolo/${file} is not installed")
  endif()
endforeach()
execute_process(COMMAND ${WORK}/prefix/bin/kolo-timeline merge --help OUTPUT_VARIABLE help)
if(NOT help MATCHES "kolo-timeline merge /tmp" OR help MATCHES "tools/")
  message(FATAL_ERROR "kolo-timeline speaks of another program:\n${help}")
endif()
run(${WORK}/build/core_consumer)
run(${CMAKE_CURRENT_LIST_DIR}/../examples/languages_test --prefix ${WORK}/prefix)
if(WITH_TORCH)
  run(${WORK}/build/torch_consumer)
endif()
