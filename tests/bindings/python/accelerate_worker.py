"""A rank that runs scripts with which HuggingFace tests Accelerate, over kolo's group: accelerate_worker.py NAME…"""
import os
import runpy
import sys

import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState


def say(text):
    # Text and line end in one piece: unbuffered, print() writes them by two calls.
    print(f"rank {os.environ['RANK']} {text}\n", end="", flush=True)


for name in sys.argv[1:]:
    dist.init_process_group("kolo")
    Accelerator(cpu=True)
    say(f"runs {name} over {dist.get_backend()}")
    runpy.run_module(f"accelerate.test_utils.scripts.{name}", run_name="__main__")  # ends the group, too
    AcceleratorState._reset_state(True)
say("is done")
