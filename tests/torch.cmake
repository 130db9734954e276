# The binding and the example, alone and under mpirun.
if(KOLO_HAS_TORCH)
  # kolo_add_torch_tests(<name> RANKS <numbers> SOURCES <files>)
  # The program <name>_tests, whose main() calls kolo::init(), as one test of CTest for each number of
  # ranks: 0 without mpirun, the others under it.
  function(kolo_add_torch_tests name)
    cmake_parse_arguments(ARG "" "" "RANKS;SOURCES" ${ARGN})
    kolo_add_torch_program(${name}_tests ${ARG_SOURCES})
    target_include_directories(${name}_tests PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name}_tests PRIVATE GTest::gmock GTest::gtest)
    foreach(ranks ${ARG_RANKS})
      if(ranks EQUAL 0)
        add_test(NAME ${name}_alone COMMAND ${name}_tests)
        set_tests_properties(${name}_alone PROPERTIES TIMEOUT 120 LABELS torch)
      else()
        kolo_add_mpi_test(${name}_${ranks} PROGRAM ${name}_tests NP ${ranks} LABELS torch)
      endif()
    endforeach()
  endfunction()
  # kolo_add_random_programs(<name> PROGRAMS <number> RANKS <numbers> [KNOBS_<ranks> <variable>=<value>…]
  #                          SOURCES <files>)
  # The program <name> as one test of CTest for each number of ranks, with seeds of its own, under kolo-run.
  function(kolo_add_random_programs name)
    cmake_parse_arguments(ARG "" "PROGRAMS" "RANKS;KNOBS_1;KNOBS_2;KNOBS_3;KNOBS_4;SOURCES" ${ARGN})
    kolo_add_torch_program(${name} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE CLI11::CLI11 fmt::fmt)
    foreach(ranks ${ARG_RANKS})
      # Four ranks are on two hosts.
      add_test(NAME ${name}_${ranks} COMMAND $<TARGET_FILE:kolo-run> -np ${ranks}
        ${CMAKE_CURRENT_SOURCE_DIR}/support/on_hosts $<IF:$<EQUAL:${ranks},4>,2,1>
        $<TARGET_FILE:${name}> --seed ${ranks}000 --programs ${ARG_PROGRAMS})
      set_tests_properties(${name}_${ranks} PROPERTIES TIMEOUT 120 LABELS torch
        PROCESSORS ${ranks} ENVIRONMENT "OMP_NUM_THREADS=1;${ARG_KNOBS_${ranks}}")
    endforeach()
  endfunction()
  kolo_add_torch_tests(torch RANKS 0 1 2 3 4 SOURCES
    bindings/torch/after_backward_test.cc
    bindings/torch/gradient_groups_test.cc
    bindings/torch/left_out_batches_test.cc
    bindings/torch/optimizer_one_rank_test.cc
    bindings/torch/optimizer_options_test.cc
    bindings/torch/sparse_gradients_test.cc
    bindings/torch/state_comparison_test.cc
    bindings/torch/torch_test.cc
    bindings/torch/training_test.cc
    bindings/torch/uneven_passes_test.cc
    bindings/torch/unfinished_gradients_test.cc)
  add_test(NAME torch_late_rank COMMAND kolo-run -np 2 $<TARGET_FILE:torch_tests>
    --gtest_also_run_disabled_tests --gtest_filter=LateRanks.*)
  set_tests_properties(torch_late_rank PROPERTIES TIMEOUT 60 LABELS torch PROCESSORS 2
    ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_OPERATION_TIMEOUT=2"
    PASS_REGULAR_EXPRESSION "PASSED  . 2 tests.*PASSED  . 2 tests")
  # Elastic jobs that are disturbed; one of DistributedDataParallel, which seems to be on two hosts.
  kolo_add_torch_program(chaos_worker chaos/worker.cc)
  set(chaos_ddp_options --ddp --hosts 2)
  set(chaos_sharded_options --sharded)
  foreach(of optimizer ddp sharded)
    add_test(NAME chaos_${of} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/chaos/chaos
      --kolo-run $<TARGET_FILE:kolo-run> --worker $<TARGET_FILE:chaos_worker>
      --faults 10 ${chaos_${of}_options})
    set_tests_properties(chaos_${of} PROPERTIES TIMEOUT 300 LABELS torch PROCESSORS 3)
  endforeach()
  # Elastic jobs by kolo-run, whose slots come and go.
  kolo_add_torch_program(elastic_worker tools/run/elastic_worker.cc)
  add_test(NAME kolo_run_elastic COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/run/kolo_run_elastic_test
    --kolo-run $<TARGET_FILE:kolo-run> --worker $<TARGET_FILE:elastic_worker>)
  set_tests_properties(kolo_run_elastic PROPERTIES TIMEOUT 300 LABELS torch PROCESSORS 3)
  add_test(NAME chaos_lost_part COMMAND kolo-run -np 4 --min-np 1 --bind none
    $<TARGET_FILE:chaos_worker> --sharded --lose-two --step-ms 1)
  set_tests_properties(chaos_lost_part PROPERTIES TIMEOUT 60 LABELS torch PROCESSORS 3
    ENVIRONMENT OMP_NUM_THREADS=1 PASS_REGULAR_EXPRESSION
    "the part of rank 1 of 4 is gone.*begin anew from a checkpoint")
  kolo_add_torch_tests(torch_gradients RANKS 0 2 3 SOURCES
    bindings/torch/tools_test_main.cc
    bindings/torch/not_finite_test.cc
    bindings/torch/shared_gradients_test.cc)
  add_test(NAME torch_not_finite COMMAND kolo-run -np 3 $<TARGET_FILE:torch_gradients_tests>
    --gtest_also_run_disabled_tests --gtest_filter=DISABLED_NotFinite.*)
  set_tests_properties(torch_not_finite PROPERTIES TIMEOUT 60 LABELS torch PROCESSORS 2
    ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_CHECK_FINITE=error"
    PASS_REGULAR_EXPRESSION "PASSED  . 4 tests.*PASSED  . 4 tests.*PASSED  . 4 tests"
    FAIL_REGULAR_EXPRESSION "FAILED")
  # Too little of such memory: it says so, and everything else is the same.
  kolo_add_mpi_test(torch_gradients_small_arena PROGRAM torch_gradients_tests NP 2 LABELS torch)
  if(TEST torch_gradients_small_arena)
    set_tests_properties(torch_gradients_small_arena PROPERTIES
      ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_ARENA=65536;KOLO_LOG_LEVEL=info"
      PASS_REGULAR_EXPRESSION "bytes that ranks of this host share.*KOLO_ARENA can be larger.*PASSED"
      FAIL_REGULAR_EXPRESSION "FAILED")
  endif()
  kolo_add_torch_tests(torch_collectives RANKS 1 2 3 4 SOURCES
    bindings/torch/tools_test_main.cc
    bindings/torch/autograd_functions_test.cc
    bindings/torch/collectives_test.cc
    bindings/torch/layout_test.cc
    bindings/torch/process_set_functions_test.cc)
  if(KOLO_HAS_C10D)
    kolo_add_torch_tests(c10d RANKS 0 2 3 4 SOURCES
      bindings/torch/tools_test_main.cc
      bindings/c10d/group_work_test.cc
      bindings/c10d/groups_test.cc
      bindings/c10d/members_test.cc
      bindings/c10d/out_of_step_test.cc
      bindings/c10d/process_group_test.cc
      bindings/c10d/reducer_test.cc
      bindings/c10d/refused_calls_test.cc)
    # Each ends its processes' communication, or that of a process set.
    foreach(test OutOfStep OneRankHasAnotherRoot OneRankRefusesAReduce OneRankRefusesSeveralAtOnce OneRankRefusesAReduceScatter
        TheRootRefusesAGatherSingle
        AbortEndsOneGroup AbortOfTheGroupOfAllRanks ShrinkLeavesTheOthersAlone ShrinkThatAborts)
      add_test(NAME c10d_${test} COMMAND kolo-run -np 3 $<TARGET_FILE:c10d_tests>
        --gtest_also_run_disabled_tests --gtest_filter=*.DISABLED_${test})
      set_tests_properties(c10d_${test} PROPERTIES TIMEOUT 60 LABELS torch PROCESSORS 2
        ENVIRONMENT OMP_NUM_THREADS=1 PASS_REGULAR_EXPRESSION "PASSED  . 1 test.*PASSED  . 1 test.*PASSED  . 1 test"
        FAIL_REGULAR_EXPRESSION "FAILED")
    endforeach()
    kolo_add_torch_program(c10d_members_worker bindings/c10d/members_worker.cc)
    add_test(NAME c10d_members_process COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bindings/c10d/members_process_test
      --kolo-run $<TARGET_FILE:kolo-run> --probe $<TARGET_FILE:c10d_members_worker>)
    set_tests_properties(c10d_members_process PROPERTIES TIMEOUT 180 LABELS torch PROCESSORS 2)
    # Random programs of several groups, each result compared with its definition.
    kolo_add_random_programs(c10d_stress PROGRAMS 200 RANKS 2 3 4 KNOBS_3 KOLO_SHARED_MEMORY=0 SOURCES
      bindings/c10d/stress/begin.cc
      bindings/c10d/stress/c10d_stress.cc
      bindings/c10d/stress/call.cc
      bindings/c10d/stress/caller.cc
      bindings/c10d/stress/other_calls.cc
      bindings/c10d/stress/place.cc)
  endif()
  kolo_add_torch_tests(torch_tools RANKS 0 2 3 SOURCES
    bindings/torch/tools_test_main.cc
    bindings/torch/checkpoint_failures_test.cc
    bindings/torch/checkpoint_test.cc
    bindings/torch/console_test.cc
    bindings/torch/data_loader_test.cc
    bindings/torch/elastic_sampler_test.cc
    bindings/torch/elastic_test.cc
    bindings/torch/metrics_test.cc
    bindings/torch/objects_test.cc
    bindings/torch/optimizer_state_test.cc
    bindings/torch/rank_sampler_test.cc)
  kolo_add_torch_tests(torch_sharded RANKS 0 2 3 4 SOURCES
    bindings/torch/tools_test_main.cc
    bindings/torch/changed_layout_test.cc
    bindings/torch/sharded_errors_test.cc
    bindings/torch/sharded_optimizer_test.cc
    bindings/torch/sharded_tied_test.cc
    bindings/torch/sharded_world_test.cc)
  kolo_add_torch_tests(torch_accelerator RANKS 0 2 3 SOURCES
    bindings/torch/tools_test_main.cc
    bindings/torch/accelerator_config_test.cc
    bindings/torch/accelerator_test.cc
    bindings/torch/accumulation_test.cc
    bindings/torch/prepared_loader_test.cc
    bindings/torch/prepared_scheduler_test.cc)
  kolo_add_torch_tests(ddp RANKS 0 1 2 3 4 SOURCES
    bindings/torch/ddp_backward_test.cc
    bindings/torch/ddp_devices_test.cc
    bindings/torch/ddp_join_test.cc
    bindings/torch/ddp_one_rank_test.cc
    bindings/torch/ddp_pair_test.cc
    bindings/torch/ddp_test.cc
    bindings/torch/interrupted_step_test.cc
    bindings/torch/uneven_shares_test.cc)
  kolo_add_test(torch_before_init_tests TORCH SOURCES bindings/torch/before_init_test.cc)
  # What aborts kolo takes a process of its own.
  foreach(case AHookThatThrows AGradientThatComesTooLate AFailureBehindAnInnerBackward
      SeveralGradientsOfAParameter)
    add_test(NAME ddp_${case} COMMAND kolo-run -np 2 $<TARGET_FILE:ddp_tests>
      --gtest_also_run_disabled_tests --gtest_filter=DdpEnd.DISABLED_${case}*)
    set_tests_properties(ddp_${case} PROPERTIES TIMEOUT 60 LABELS torch PROCESSORS 2
      ENVIRONMENT OMP_NUM_THREADS=1 PASS_REGULAR_EXPRESSION "PASSED  . 1 test.*PASSED  . 1 test")
  endforeach()
  foreach(case ADecompressorThatThrows AShardedStepThatThrows ARankThatComesTooLateToDdp
      ARankThatComesTooLateToShards)
    add_test(NAME step_${case} COMMAND kolo-run -np 2 $<TARGET_FILE:ddp_tests>
      --gtest_also_run_disabled_tests --gtest_filter=StepEnd.DISABLED_${case}*)
    set_tests_properties(step_${case} PROPERTIES TIMEOUT 60 LABELS torch PROCESSORS 2
      ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_OPERATION_TIMEOUT=3"
      PASS_REGULAR_EXPRESSION "PASSED  . 1 test.*PASSED  . 1 test")
  endforeach()
  kolo_add_mpi_test(ddp_small_arena PROGRAM ddp_tests NP 2 LABELS torch)
  if(TEST ddp_small_arena)
    set_tests_properties(ddp_small_arena PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1;KOLO_ARENA=65536")
  endif()
  # Memory that was freed is overwritten, so that whoever still reads it fails.
  kolo_add_torch_program(static_objects bindings/torch/static_objects.cc)
  foreach(end exit shutdown)
    add_test(NAME static_objects_${end} COMMAND kolo-run -np 2 $<TARGET_FILE:static_objects> ${end})
    set_tests_properties(static_objects_${end} PROPERTIES TIMEOUT 60 LABELS torch PROCESSORS 2
      ENVIRONMENT
      "OMP_NUM_THREADS=1;MALLOC_PERTURB_=165;GLIBC_TUNABLES=glibc.malloc.tcache_count=0")
  endforeach()
  # Random trainings, each compared with one process.
  kolo_add_random_programs(training_stress PROGRAMS 50 RANKS 1 2 3 4
    KNOBS_2 KOLO_FUSION_THRESHOLD=4096 KOLO_CACHE_CAPACITY=3
    KNOBS_3 KOLO_SHARED_MEMORY=0 KOLO_BATCH_WINDOW=0 KOLO_BATCH_SIZE=0
    SOURCES
    bindings/torch/stress/after_failure.cc
    bindings/torch/stress/comparison.cc
    bindings/torch/stress/failing_program.cc
    bindings/torch/stress/fault.cc
    bindings/torch/stress/model.cc
    bindings/torch/stress/network.cc
    bindings/torch/stress/plan.cc
    bindings/torch/stress/training.cc
    bindings/torch/stress/training_stress.cc)
  # The same where one rank fails in the midst.
  add_test(NAME training_faults COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bindings/torch/stress/training_faults
    --probe $<TARGET_FILE:training_stress> --count 10)
  set_tests_properties(training_faults PROPERTIES TIMEOUT 180 LABELS torch RUN_SERIAL ON)
  # Random programs about data, whose samples are those that one process works out.
  kolo_add_random_programs(loader_stress PROGRAMS 200 RANKS 1 2 3 4 SOURCES
    bindings/torch/stress/deal.cc
    bindings/torch/stress/dealt_pass.cc
    bindings/torch/stress/loader_stress.cc
    bindings/torch/stress/prepared_program.cc
    bindings/torch/stress/sampler_program.cc
    bindings/torch/stress/seat.cc)
  # Common slips, which the compiler explains.
  add_test(NAME wrong_uses COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only
    "-I$<JOIN:$<TARGET_PROPERTY:static_objects,INCLUDE_DIRECTORIES>,;-I>"
    ${CMAKE_CURRENT_SOURCE_DIR}/bindings/torch/wrong_uses.cc COMMAND_EXPAND_LISTS)
  set_tests_properties(wrong_uses PROPERTIES TIMEOUT 120 LABELS torch
    PASS_REGULAR_EXPRESSION "shared_ptr to a torch::nn::Module.*optimizer's own type.*leaves its scheduler without one.*make a number a tensor")
  # What else trains on several devices.
  kolo_add_torch_tests(torch_patterns RANKS 0 2 3 4 SOURCES
    bindings/torch/tools_test_main.cc
    bindings/torch/autocast_test.cc
    bindings/torch/data_parallel_test.cc
    bindings/torch/grad_scaler_test.cc
    bindings/torch/sync_batch_norm_test.cc)
  # Devices, files and forwards; with private sources of the binding, which its library hides.
  kolo_add_torch_tests(torch_devices RANKS 0 SOURCES
    bindings/torch/tools_test_main.cc
    bindings/torch/checkpoint_file_test.cc
    bindings/torch/ddp_forwards_test.cc
    bindings/torch/device_test.cc
    bindings/torch/shard_copies_test.cc
    ${PROJECT_SOURCE_DIR}/bindings/torch/gradients/ddp_forwards.cc
    ${PROJECT_SOURCE_DIR}/bindings/torch/training/checkpoint_file.cc
    ${PROJECT_SOURCE_DIR}/bindings/torch/training/shard_copies.cc
    ${PROJECT_SOURCE_DIR}/bindings/torch/tensors/device_stream.cc
    ${PROJECT_SOURCE_DIR}/bindings/torch/tensors/tensor_memory.cc)
  # On GPUs: without one it says so and counts as skipped.
  kolo_add_torch_program(tensor_check
    gpu/stream_checks.cc gpu/tensor_check.cc gpu/training_checks.cc)
  target_include_directories(tensor_check PRIVATE ${PROJECT_SOURCE_DIR})
  add_test(NAME gpu_tensors COMMAND $<TARGET_FILE:kolo-run> -np 2 $<TARGET_FILE:tensor_check>)
  set_tests_properties(gpu_tensors PROPERTIES TIMEOUT 300 LABELS "gpu;torch" PROCESSORS 2
    SKIP_RETURN_CODE 77)
  # The table of Horovod's tests names tests that exist; those of every optional part, so all must be
  # there.
  if(KOLO_HAS_MPI)
    add_test(NAME horovod_table COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/horovod_table_test
      --build ${PROJECT_BINARY_DIR} --source ${PROJECT_SOURCE_DIR})
    set_tests_properties(horovod_table PROPERTIES TIMEOUT 120 LABELS tools)
  endif()
  if(TARGET mnist_parts)
    kolo_add_test(digits_tests TORCH SOURCES examples/digits_test.cc LIBRARIES mnist_parts)
    kolo_add_test(text_tests TORCH SOURCES examples/text_test.cc
      ${PROJECT_SOURCE_DIR}/examples/char_transformer/text.cc)
  endif()
  # kolo_add_example_test(<name> [KOLO_RUN] PROGRAM <target> NP <ranks> LAST_LINE <regular expression>
  #                       [ARGS <arguments>])
  function(kolo_add_example_test name)
    cmake_parse_arguments(ARG "KOLO_RUN" "PROGRAM;NP;LAST_LINE" "ARGS" ${ARGN})
    if(NOT TARGET ${ARG_PROGRAM} OR (NOT KOLO_HAS_MPI AND NOT ARG_KOLO_RUN AND ARG_NP GREATER 1))
      return()
    endif()
    set(launcher "")
    if(ARG_KOLO_RUN)
      set(launcher $<TARGET_FILE:kolo-run> -np ${ARG_NP})
    elseif(ARG_NP GREATER 1)
      set(launcher ${PROJECT_SOURCE_DIR}/tests/support/mpirun -np ${ARG_NP})
    endif()
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/examples/example_test
      --last-line ${ARG_LAST_LINE} -- ${launcher} $<TARGET_FILE:${ARG_PROGRAM}> ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES TIMEOUT 180 LABELS "examples;torch"
      PROCESSORS ${ARG_NP} ENVIRONMENT "OMP_NUM_THREADS=1")
  endfunction()
  set(digits --data ${PROJECT_SOURCE_DIR}/build/data/mnist)
  set(nine_of_ten "Accuracy: 9.* %")
  kolo_add_example_test(single_device PROGRAM single_device NP 1 LAST_LINE ${nine_of_ten}
    ARGS ${digits} --epochs 1)
  kolo_add_example_test(horovod_style PROGRAM horovod_style NP 2 LAST_LINE ${nine_of_ten}
    ARGS ${digits} --epochs 2)
  kolo_add_example_test(horovod_style_by_kolo_run KOLO_RUN PROGRAM horovod_style NP 2
    LAST_LINE ${nine_of_ten} ARGS ${digits} --epochs 2)
  kolo_add_example_test(ddp_style PROGRAM ddp NP 2 LAST_LINE ${nine_of_ten}
    ARGS ${digits} --epochs 2)
  kolo_add_example_test(data_parallel_style PROGRAM data_parallel NP 1 LAST_LINE ${nine_of_ten}
    ARGS ${digits} --epochs 1 --devices cpu,cpu)
  kolo_add_example_test(model_parallel_style PROGRAM model_parallel_ddp NP 2
    LAST_LINE ${nine_of_ten} ARGS ${digits} --epochs 2 --devices cpu,cpu)
  # Half types are slow where the CPU has no instructions for them: fewer digits.
  set(eight_of_ten "Accuracy: [89][0-9].* %")
  kolo_add_example_test(mixed_precision_bf16 PROGRAM mixed_precision NP 2 LAST_LINE ${eight_of_ten}
    ARGS ${digits} --epochs 1 --images 2000 --batch-size 32 --dtype bf16)
  kolo_add_example_test(mixed_precision_fp16 PROGRAM mixed_precision NP 2
    LAST_LINE "Accuracy: [5-9][0-9].* %"
    ARGS ${digits} --epochs 1 --images 320 --batch-size 16 --dtype fp16)
  if(TARGET model_parallel_ddp)
    add_test(NAME styles_say_how_many_devices COMMAND model_parallel_ddp ${digits} --devices cpu)
    add_test(NAME styles_name_a_wrong_device COMMAND data_parallel --devices cpu,nowhere)
    set_tests_properties(styles_say_how_many_devices styles_name_a_wrong_device PROPERTIES
      TIMEOUT 60 LABELS "examples;torch")
    set_tests_properties(styles_say_how_many_devices PROPERTIES
      PASS_REGULAR_EXPRESSION "--devices takes two")
    set_tests_properties(styles_name_a_wrong_device PROPERTIES
      PASS_REGULAR_EXPRESSION "'nowhere' is no device")
  endif()
  kolo_add_example_test(minimal_ddp_2 PROGRAM minimal_ddp NP 2 LAST_LINE DONE)
  foreach(ranks 1 2 3)
    kolo_add_example_test(minimal_optimizer_${ranks} PROGRAM minimal_optimizer NP ${ranks}
      LAST_LINE DONE)
  endforeach()
  kolo_add_example_test(accelerate_style_2 PROGRAM accelerate_style NP 2
    LAST_LINE ${nine_of_ten} ARGS ${digits} --epochs 3 --gradient_accumulation_steps 2)
  kolo_add_example_test(accelerate_style_configured PROGRAM accelerate_style NP 1
    LAST_LINE ${eight_of_ten}
    ARGS ${digits} --epochs 1 --images 2000 --batch-size 32 --mixed_precision bf16
      --config_file ${CMAKE_CURRENT_SOURCE_DIR}/examples/accelerate.yaml)
  kolo_add_example_test(sharded_optimizer_2 PROGRAM sharded_optimizer NP 2
    LAST_LINE ${nine_of_ten} ARGS ${digits} --epochs 2)
  if(TARGET accelerate_style)
    add_test(NAME accelerate_style_machines COMMAND
      ${CMAKE_CURRENT_SOURCE_DIR}/examples/machines_test
      --program $<TARGET_FILE:accelerate_style> --data ${PROJECT_SOURCE_DIR}/build/data/mnist)
    set_tests_properties(accelerate_style_machines PROPERTIES TIMEOUT 180 LABELS "examples;torch"
      PROCESSORS 2 ENVIRONMENT "OMP_NUM_THREADS=1")
    add_test(NAME patterns COMMAND ${PROJECT_SOURCE_DIR}/tools/patterns --only single_device,ddp
      --build ${PROJECT_BINARY_DIR} --data ${PROJECT_SOURCE_DIR}/build/data/mnist
      --rounds 1 --epochs 1)
    set_tests_properties(patterns PROPERTIES TIMEOUT 180 LABELS "tools;torch" PROCESSORS 2
      PASS_REGULAR_EXPRESSION "`ddp` . 2 . 1[0-9] . [0-9]+ MiB . [0-9]+ . [0-9]+ s . [89]")
  endif()
  # By the global batch, the last loss is the same for any number of ranks.
  foreach(ranks 1 2 3)
    kolo_add_example_test(toy_regression_${ranks} PROGRAM toy_regression NP ${ranks}
      LAST_LINE "Last loss: 0.2[0-9]+" ARGS --epochs 2)
  endforeach()
  set(small_gpt --text ${PROJECT_SOURCE_DIR}/LICENSE --steps 60 --width 64 --layers 1
    --context 32)
  set(learned "Loss: 2.[0-9]+, [0-9]+ tokens/s, [0-9.]+ MiB of optimizer state on rank 0")
  kolo_add_example_test(char_transformer_1 PROGRAM char_transformer NP 1 LAST_LINE ${learned}
    ARGS ${small_gpt} --generate 20)
  kolo_add_example_test(char_transformer_2 PROGRAM char_transformer NP 2 LAST_LINE ${learned}
    ARGS ${small_gpt})
  kolo_add_example_test(char_transformer_zero_2 PROGRAM char_transformer NP 2 LAST_LINE ${learned}
    ARGS ${small_gpt} --zero)
  if(TARGET synthetic_benchmark)
    kolo_add_test(resnet_tests TORCH SOURCES examples/resnet_test.cc
      LIBRARIES synthetic_benchmark_parts)
  endif()
  foreach(ranks 1 2)
    kolo_add_example_test(synthetic_benchmark_${ranks} PROGRAM synthetic_benchmark NP ${ranks}
      LAST_LINE "Total img/sec on ${ranks} rank.s.: [0-9.]+ .-[0-9.]+"
      ARGS --model resnet18 --image-size 32 --batch-size 2 --num-warmup-batches 1
        --num-batches-per-iter 1 --num-iters 2 --fp16-allreduce)
    if(TARGET rectified_flow AND (KOLO_HAS_MPI OR ranks EQUAL 1))
      add_test(NAME rectified_flow_${ranks} COMMAND
        ${PROJECT_SOURCE_DIR}/tests/examples/rectified_flow_test
        --program $<TARGET_FILE:rectified_flow> --data ${PROJECT_SOURCE_DIR}/build/data/mnist
        --mpirun ${PROJECT_SOURCE_DIR}/tests/support/mpirun --ranks ${ranks})
      set_tests_properties(rectified_flow_${ranks} PROPERTIES TIMEOUT 300 LABELS "examples;torch"
        PROCESSORS ${ranks} ENVIRONMENT "OMP_NUM_THREADS=1")
    endif()
  endforeach()
  # The tutorial, line by line.
  add_test(NAME tutorial COMMAND ${PROJECT_SOURCE_DIR}/tests/examples/tutorial_test
    --build ${PROJECT_BINARY_DIR})
  set_tests_properties(tutorial PROPERTIES TIMEOUT 300 LABELS "examples;torch" PROCESSORS 2
    ENVIRONMENT "CXX=${CMAKE_CXX_COMPILER}")
  # The same loss curve at any number of ranks, and an honest end when the data is missing.
  add_test(NAME mnist_loss_curves COMMAND ${PROJECT_SOURCE_DIR}/tests/examples/mnist_test
    --program $<TARGET_FILE:mnist> --data ${PROJECT_SOURCE_DIR}/build/data/mnist
    --mpirun ${PROJECT_SOURCE_DIR}/tests/support/mpirun)
  set_tests_properties(mnist_loss_curves PROPERTIES TIMEOUT 300 LABELS "torch;mpi" RUN_SERIAL ON)
endif()
