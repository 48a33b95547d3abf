# Compiles every public header of worker_lib alone, as C++17, with the warnings that users may have as errors.
# Wants: INCLUDE_DIR, WORK_DIR, CXX.
file(GLOB headers RELATIVE ${INCLUDE_DIR} ${INCLUDE_DIR}/drun/*.h)
if(NOT headers)
  message(FATAL_ERROR "no headers in ${INCLUDE_DIR}/drun")
endif()
set(bad "")
foreach(header ${headers})
  # Under a path that is not a system's, or warnings would be kept quiet; twice, as programs do.
  file(WRITE ${WORK_DIR}/alone.cc "#include \"${header}\"\n#include \"${header}\"\n")
  execute_process(
    COMMAND ${CXX} -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only -I${INCLUDE_DIR}
      ${WORK_DIR}/alone.cc
    RESULT_VARIABLE result ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(APPEND bad "${header}:\n${output}\n")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK_DIR})
if(bad)
  message(FATAL_ERROR "${bad}")
endif()
