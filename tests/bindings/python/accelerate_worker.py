"""A rank that runs scripts with which HuggingFace tests Accelerate, over kolo's group: accelerate_worker.py NAME…"""
import os
import runpy
import sys

import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState

for name in sys.argv[1:]:
    dist.init_process_group("kolo")
    Accelerator(cpu=True)
    print(f"rank {os.environ['RANK']} runs {name} over {dist.get_backend()}", flush=True)
    runpy.run_module(f"accelerate.test_utils.scripts.{name}", run_name="__main__")  # ends the group, too
    AcceleratorState._reset_state(True)
print(f"rank {os.environ['RANK']} is done", flush=True)
