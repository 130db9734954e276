// Gives the precompiled <torch/torch.h> of KoloTorch.cmake a target to belong to.
