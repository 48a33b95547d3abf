# Installs the build into a fresh prefix, then configures, builds and runs a program that finds it there.
# Wants: BUILD_DIR, SOURCE_DIR, WORK_DIR, GENERATOR, CXX, CXX_FLAGS, BUILD_TYPE.
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
foreach(header elements error key_store process_group record)
  if(NOT EXISTS ${WORK_DIR}/prefix/include/drun/${header}.h)
    message(FATAL_ERROR "include/drun/${header}.h is not installed")
  endif()
endforeach()
step(${WORK_DIR}/prefix/bin/drun --version)

step(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
step(${WORK_DIR}/build/consumer)
if(NOT output MATCHES "ranks? agree")
  message(FATAL_ERROR "the consumer said: ${output}")
endif()
message(STATUS "${output}")
file(REMOVE_RECURSE ${WORK_DIR})
