"""Training on CUDA, on one rank and on two that share the GPU; used by tools/gpu_check."""
import json
import re
import shutil

from gpu import bundle
from gpu.outcome import Failed, NotRun

STEPS = 50
# Float32 sums in another order, and cuDNN's choice of kernels by the size of the batch, amplified by
# 50 steps of AdamW; of losses below SMALL, of that. A wrong average is off by far more.
TOLERANCE = 1e-2
SMALL = 0.5
# Else cuDNN rounds its inputs to TensorFloat-32, by kernels that depend on the size of the batch.
EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}
FLOW_TOLERANCE = 0.05  # each rank draws noise of its own: alike, not equal


def digits(context):
    """The folder of MNIST's files."""
    for folder in (context.data, context.build.folder / "root" / bundle.DIGITS,
                   context.root / "build/data/mnist"):
        if folder is not None and (folder / "train-images-idx3-ubyte").exists():
            return str(folder)
    raise NotRun("MNIST's files are missing; tools/setup fetches them, or give --data")


def mnist(context):
    curves = {}
    for ranks in (1, 2):
        losses = context.logs / f"mnist_{ranks}.jsonl"
        losses.unlink(missing_ok=True)
        text = context.ranks(ranks, [context.program("mnist"), "--data", digits(context),
                                     "--device", "cuda", "--no-dropout", "--max-steps", str(STEPS),
                                     "--epochs", "2", "--log-losses", str(losses)], EXACT)
        if "bit-identical" not in text:
            raise Failed(f"{ranks} rank(s): parameters differ between the ranks")
        curves[ranks] = [json.loads(line)["loss"] for line in losses.read_text().splitlines()]
    worst = max(abs(a - b) / max(b, SMALL) for a, b in zip(curves[2], curves[1]))
    note = (f"{STEPS} losses, {curves[1][0]:.4f} to {curves[1][-1]:.4f}; 2 ranks differ by "
            f"{worst:.1e} at most, {TOLERANCE:.0e} allowed")
    if len(curves[1]) != STEPS or len(curves[2]) != STEPS or worst > TOLERANCE:
        raise Failed(note)
    return note


def rectified_flow(context):
    means = {}
    for ranks in (1, 2):
        output = context.logs / f"flow_{ranks}"
        shutil.rmtree(output, ignore_errors=True)
        context.ranks(ranks, [context.program("rectified_flow"), "--data", digits(context),
                              "--device", "cuda", "--global-batch", "64", "--epochs", "3", "--lr",
                              "1e-3", "--output-dir", str(output)])
        files = [path for path in output.iterdir() if re.search(r"loss.*\.json$", path.name)]
        means[ranks] = json.loads(files[0].read_text())["losses"]
    worst = abs(means[2][-1] - means[1][-1]) / means[1][-1]
    note = (f"3 epochs, mean loss {means[1][-1]:.4f} on one rank, {means[2][-1]:.4f} on two")
    if worst > FLOW_TOLERANCE or means[2][-1] >= means[2][0]:
        raise Failed(note)
    return note
