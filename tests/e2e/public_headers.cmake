# Compiles every public header of worker_lib alone, as C++17, with the warnings that users may have as errors, and code
# that the headers reject.
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
# Characters are rejected with an explanation.
foreach(type char wchar_t char16_t char32_t)
  file(WRITE ${WORK_DIR}/characters.cc "#include <string>\n#include \"drun/process_group.h\"\n"
    "void send(drun::ProcessGroup& group, std::basic_string<${type}>& text) { group.send(text, 1); }\n")
  execute_process(
    COMMAND ${CXX} -std=c++17 -fsyntax-only -I${INCLUDE_DIR} ${WORK_DIR}/characters.cc
    RESULT_VARIABLE result ERROR_VARIABLE output)
  if(result EQUAL 0 OR NOT output MATCHES "use std::int8_t, std::uint8_t or std::byte")
    string(APPEND bad "a string of ${type} is not rejected as it should be:\n${output}\n")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK_DIR})
if(bad)
  message(FATAL_ERROR "${bad}")
endif()
