# Looks for the LibTorch that KOLO_TORCH_ROOT names, and says why there is none. Run by CTest:
# cmake -D CMAKE_MODULE_PATH=<kolo's cmake> -D KOLO_TORCH_ROOT=… -P find_torch.cmake
find_package(KoloTorch QUIET)
message("${KoloTorch_REASON}")
