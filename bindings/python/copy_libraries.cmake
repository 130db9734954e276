# Run by `cmake --install --component python_libraries`: copies the libraries that ${programs} need, and
# UCX's modules, into lib/ of the package, with their copyright files. glibc, GCC's libraries and torch
# are everybody's; drivers (verbs, CUDA) and MPI belong to the machine that runs the program.
set(lib $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib)
set(left_to_the_system
  "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc[+][+]|gomp)[.]so" "^lib(kolo|torch|c10|uct_)"
  "^lib(ibverbs|mlx[45]|efa|rdmacm|cuda|cudart|nvidia-ml|gdrapi|xpmem)[-.]" "^lib(mpi|pmix|open-rte|open-pal)[.]")
file(GLOB modules ${ucx_folder}/ucx/libu*.so.0)
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${programs}
  MODULES ${modules}
  RESOLVED_DEPENDENCIES_VAR libraries
  PRE_EXCLUDE_REGEXES ${left_to_the_system})

# Below the name by which it is asked for: a wheel holds no links.
function(copy library folder)
  get_filename_component(name ${library} NAME)
  get_filename_component(file ${library} REALPATH)
  file(MAKE_DIRECTORY ${folder})
  file(COPY_FILE ${file} ${folder}/${name} ONLY_IF_DIFFERENT)
  string(REGEX REPLACE "^/usr" "" without_usr ${file})
  foreach(path ${file} ${without_usr})
    execute_process(COMMAND dpkg-query --search ${path} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE unknown)
    if(NOT unknown)
      string(REGEX REPLACE ":.*" "" package "${owner}")
      file(MAKE_DIRECTORY ${lib}/copyright)
      file(COPY_FILE /usr/share/doc/${package}/copyright ${lib}/copyright/${package})
      return()
    endif()
  endforeach()
  message(STATUS "no Debian package owns ${file}: add its copyright by hand")
endfunction()
foreach(library IN LISTS libraries)
  copy(${library} ${lib})
endforeach()
foreach(module IN LISTS modules)
  copy(${module} ${lib}/ucx)
endforeach()
