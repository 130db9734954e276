# Run by `cmake -P` after a test program is linked: writes to OUT what CTest includes, a test for each
# of the program's. A parameterised one is one test for all its values, in one process: most values
# take less than a process takes to start, by far with a sanitizer.
# LAUNCHER (a list) starts PROGRAM; TIMEOUT is one value's; ENVIRONMENT and LABELS are lists.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${LAUNCHER} ${PROGRAM} --gtest_list_tests
  OUTPUT_VARIABLE listed TIMEOUT 60 COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE " *#[^\n]*" "" listed "${listed}")  # the values themselves
string(REGEX REPLACE "\n" ";" listed "${listed}")
math(EXPR timeout_of_all "3 * ${TIMEOUT}")
set(tests "")
set(written "")
foreach(line IN LISTS listed)
  if(line MATCHES "^([^ ]+)\\.$")
    set(suite ${CMAKE_MATCH_1})
    continue()
  elseif(NOT line MATCHES "^  ([^/]+)(/.+)?$")
    continue()
  endif()
  set(test "${suite}.${CMAKE_MATCH_1}")
  set(filter "${test}")
  set(timeout ${TIMEOUT})
  if(NOT "${CMAKE_MATCH_2}" STREQUAL "")
    string(APPEND filter "/*")
    set(timeout ${timeout_of_all})
  endif()
  if(test IN_LIST tests)
    continue()
  endif()
  list(APPEND tests "${test}")
  string(APPEND written
    "add_test([=[${test}]=] ${LAUNCHER} [=[${PROGRAM}]=] [=[--gtest_filter=${filter}]=])\n"
    "set_tests_properties([=[${test}]=] PROPERTIES TIMEOUT ${timeout} LABELS [=[${LABELS}]=]\n"
    "  ENVIRONMENT [=[${ENVIRONMENT}]=] FAIL_REGULAR_EXPRESSION [=[] 0 tests from]=]\n"
    "  SKIP_REGULAR_EXPRESSION [=[PASSED  . 0 tests.\n(.  SKIPPED [^\n]+\n)+$]=])\n")
endforeach()
if(NOT tests)
  message(FATAL_ERROR "${PROGRAM} lists no test")
endif()
file(WRITE ${OUT} "${written}")
