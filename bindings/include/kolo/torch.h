// kolo for LibTorch trainers: the interface of <kolo/kolo.h> on tensors, and the training layer.
//
//   kolo::init(argc, argv);
//   torch::nn::Linear model(10, 10);
//   kolo::DistributedDataParallel ddp(model);
//   torch::optim::SGD optimizer(ddp.parameters(), 0.05);
//   torch::mse_loss(ddp.forward(input), target).backward();  // averages the gradients
#pragma once

#include <kolo/kolo.h>
#include <kolo/torch/autocast.h>
#include <kolo/torch/autograd_functions.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/checkpoint.h>
#include <kolo/torch/compression.h>
#include <kolo/torch/data_loader.h>
#include <kolo/torch/data_parallel.h>
#include <kolo/torch/device.h>
#include <kolo/torch/distributed_data_parallel.h>
#include <kolo/torch/distributed_eval_sampler.h>
#include <kolo/torch/distributed_optimizer.h>
#include <kolo/torch/distributed_sampler.h>
#include <kolo/torch/elastic.h>
#include <kolo/torch/elastic_sampler.h>
#include <kolo/torch/functions.h>
#include <kolo/torch/grad_scaler.h>
#include <kolo/torch/memory.h>
#include <kolo/torch/metrics.h>
#include <kolo/torch/objects.h>
#include <kolo/torch/optimizer_state.h>
#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/scheduler_state.h>
#include <kolo/torch/sharded_optimizer.h>
#include <kolo/torch/sync_batch_norm.h>

#if __has_include(<kolo/torch/accelerator.h>)  // installed unless -DKOLO_ACCELERATOR=OFF
#include <kolo/torch/accelerator.h>
#include <kolo/torch/console.h>
#include <kolo/torch/schedulers.h>
#include <kolo/torch/settings.h>
#endif

#include <torch/torch.h>
