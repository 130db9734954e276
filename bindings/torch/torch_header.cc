// Gives the precompiled <torch/torch.h> of cmake/KoloTorch.cmake a target to belong to.
