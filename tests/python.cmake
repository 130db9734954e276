# The Python package, with the torch of the Python that it is built for. python_prepare makes the
# script that runs that Python; where torch does not import, the tests say so and count as skipped.
if(KOLO_HAS_PYTHON)
  set(python_folder ${CMAKE_CURRENT_BINARY_DIR}/python)
  set(python_sources ${CMAKE_CURRENT_SOURCE_DIR}/bindings/python)
  add_test(NAME python_prepare COMMAND ${python_sources}/prepare --python ${Python_EXECUTABLE}
    --package ${PROJECT_BINARY_DIR}/python --folder ${python_folder})
  set_tests_properties(python_prepare PROPERTIES TIMEOUT 300 LABELS python FIXTURES_SETUP python
    SKIP_RETURN_CODE 77)
  # kolo_add_python_test(<name> PROCESSORS <number> TIMEOUT <seconds> ARGS <arguments> PROGRAM <program>)
  # The test program <program> of tests/bindings/python; without it, <name>.
  function(kolo_add_python_test name)
    cmake_parse_arguments(ARG "" "PROCESSORS;TIMEOUT;PROGRAM" "ARGS" ${ARGN})
    if(NOT ARG_PROGRAM)
      set(ARG_PROGRAM ${name})
    endif()
    add_test(NAME python_${name} COMMAND ${python_sources}/${ARG_PROGRAM}_test
      --python ${python_folder}/python --kolo-run $<TARGET_FILE:kolo-run> ${ARG_ARGS})
    set_tests_properties(python_${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "python;torch"
      PROCESSORS ${ARG_PROCESSORS} FIXTURES_REQUIRED python SKIP_RETURN_CODE 77)
  endfunction()
  set(mpirun "")
  if(KOLO_HAS_MPI)
    set(mpirun ${CMAKE_CURRENT_SOURCE_DIR}/support/mpirun)
  endif()
  kolo_add_python_test(backend PROCESSORS 2 TIMEOUT 300 ARGS "--mpirun=${mpirun}")
  kolo_add_python_test(ecosystem PROCESSORS 3 TIMEOUT 200)
  kolo_add_python_test(elastic PROCESSORS 3 TIMEOUT 300)
  kolo_add_python_test(examine PROCESSORS 2 TIMEOUT 400)
  kolo_add_python_test(failures PROCESSORS 2 TIMEOUT 200)
  kolo_add_python_test(package PROCESSORS 1 TIMEOUT 120 ARGS --build ${PROJECT_BINARY_DIR}
    --version ${PROJECT_VERSION})
  set(training_options --data ${PROJECT_SOURCE_DIR}/build/data/mnist --mpirun=${mpirun})
  kolo_add_python_test(training PROCESSORS 2 TIMEOUT 600 ARGS ${training_options} Training)
  kolo_add_python_test(accelerate PROGRAM training PROCESSORS 2 TIMEOUT 200 ARGS ${training_options} Accelerate)
  set_tests_properties(python_accelerate PROPERTIES SKIP_REGULAR_EXPRESSION "\nskipped: ")
  add_test(NAME bench_python COMMAND ${PROJECT_SOURCE_DIR}/tools/bench python --python ${python_folder}/python
    -f 65536 -e 256K -n 3)
  set_tests_properties(bench_python PROPERTIES TIMEOUT 200 LABELS "python;tools;torch" PROCESSORS 2
    FIXTURES_REQUIRED python SKIP_RETURN_CODE 77 PASS_REGULAR_EXPRESSION "256 KiB .*\n2 ranks on ")
  # Each part of it is a test, so that other tests run between them.
  foreach(part 2_ranks 3_ranks a_killed_rank a_rank_with_a_mistake run example elastic_example)
    kolo_add_python_test(horovod_${part} PROGRAM horovod PROCESSORS 2 TIMEOUT 500 ARGS
      --data ${PROJECT_SOURCE_DIR}/build/data/mnist Horovod.test_${part})
  endforeach()
endif()
