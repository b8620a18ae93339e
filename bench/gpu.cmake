# Measurements of a full-size synthetic model through the backend contract, meant for a GPU; with --tiny --backend cpu
# they run anywhere, which is what their tests do. gpu_step, gpu_probe and gpu_schedule_test look inside the CUDA backend.
add_library(voxrt_gpu_model STATIC gpu_model.cc gpu_program.cc gpu_weights.cc)
target_link_libraries(voxrt_gpu_model PUBLIC voxrt_backend_all voxrt_backend fmt::fmt PRIVATE voxrt_base voxrt_flags)
target_include_directories(voxrt_gpu_model PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})

# voxrt_gpu_program(NAME [SOURCES ...] TRY arguments... SAYS regex): a program, and a test that it runs on a CPU and prints that.
function(voxrt_gpu_program name)
  cmake_parse_arguments(ARG "" "SAYS" "SOURCES;TRY" ${ARGN})
  add_executable(${name} ${name}.cc ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE voxrt_gpu_model voxrt_flags)
  if(VOXRT_WITH_TESTS AND TARGET voxrt_backend_cpu)
    add_test(NAME ${name} COMMAND ${name} --tiny --backend cpu ${ARG_TRY})
    set_tests_properties(${name} PROPERTIES LABELS e2e TIMEOUT 120 PASS_REGULAR_EXPRESSION "${ARG_SAYS}")
  endif()
endfunction()

voxrt_gpu_program(gpu_paced TRY --streams 6 --paced 1 --w 30 SAYS "\"ticks\": 75, \"late_ticks\": [0-9]+, \"unserved\": 0")
# Passes of up to 4 rows over the whole recording: as many as the engine took for it.
voxrt_gpu_program(gpu_offline TRY --file-s 82.4 --ticks 128 --rows 1,4 --calls 8 --files 3 --files-s 2 --files-ticks 4 --w 30
                  --tokens ${CMAKE_CURRENT_SOURCE_DIR}/demo_tokens.txt SAYS "\"passes\": 571, \"tokens_per_pass\": 1.804.*\"done_s\": 2.0")
voxrt_gpu_program(gpu_chain TRY --rows 1,3 --matrices 8 SAYS "chain.: .512x128., .format.: .bf16., .rows.: 3, .matrices.: 8,")

if(VOXRT_WITH_CUDA AND TARGET voxrt_backend_cuda)
  add_executable(gpu_step gpu_step.cc gpu_phases.cc)
  target_link_libraries(gpu_step PRIVATE voxrt_gpu_model voxrt_backend_cuda voxrt_flags)
  add_executable(gpu_probe gpu_probe.cu)
  target_link_libraries(gpu_probe PRIVATE CUDA::cudart_static)
  target_include_directories(gpu_probe PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(gpu_probe PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  voxrt_test(gpu_schedule_test SOURCES gpu_schedule_test.cc DEPS voxrt_gpu_model voxrt_backend_cuda LABEL gpu TIMEOUT 600)
  if(TARGET gpu_schedule_test)
    set_tests_properties(gpu_schedule_test PROPERTIES SKIP_REGULAR_EXPRESSION "no CUDA device")
  endif()
endif()
