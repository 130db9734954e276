// Gives the precompiled headers of tests/CMakeLists.txt a target to belong to.
