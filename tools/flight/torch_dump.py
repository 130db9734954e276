"""Recordings as the dumps that PyTorch's fr_trace reads: one pickle a rank (c10d's FlightRecorder.hpp)."""
import os
import pickle

from flight.recording import REFUSED

VERSION = "2.10"
COLLECTIVES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
               "alltoall": "all_to_all"}
# fr_trace of older releases takes no other word for a library.
LIBRARY = "nccl"
SIZES = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "bfloat16": 2, "float16": 2, "int16": 2,
         "int8": 1, "uint8": 1, "bool": 1}  # 4 for others


def group_of(number, mode):
    """Negotiated operations and in-order calls of a process set have an order of their own each."""
    return f"{number}:{mode}"


def operations(recording, mode):
    """The latest operations of a mode without a gap, by (set, mode, number)."""
    by_number = {(one.set, one.sequence): one for one in recording.operations if one.mode == mode}
    calls = recording.calls if mode == "in-order" else {}
    result = {}
    for process_set in recording.sets:
        numbers = {sequence for number, sequence in by_number if number == process_set} | set(calls.get(process_set, {}))
        sequence = max(numbers, default=-1)
        while sequence in numbers:
            one = by_number.get((process_set, sequence))
            times = (one.submitted, one.started, one.ended) if one else None
            if mode == "in-order":
                fingerprint = calls[process_set][sequence]
                if fingerprint == REFUSED:
                    break
                made = entry(recording, *recording.call(fingerprint), "", 0, times)
            else:
                made = entry(recording, one.kind, elements_of(one), one.type, recording.text(one), one.step, times)
            result[process_set, mode, sequence] = made
            sequence -= 1
    return result


def waiting(recording):
    """Tensors that ranks have not agreed on, by (set, mode, name)."""
    return {(one.set, one.mode, one.name): entry(recording, one.kind, elements_of(one), one.type, one.name, one.step,
                                                 (one.submitted, 0, 0))
            for one in recording.open if one.mode == "negotiated"}


def elements_of(one):
    return 0 if one.bytes == REFUSED else one.bytes // SIZES.get(one.type, 4)


def entry(recording, kind, elements, kolo_type, name, line, times):
    """`times`: created, started, ended; None: not known, but it has ended."""
    created, started, ended = (int(recording.unix(time) * 1e9) if time else None for time in times or (0, 0, 0))
    sizes, types = [[elements]], [kolo_type.capitalize()]
    return {"p2p_seq_id": 0, "is_p2p": False, "profiling_name": f"{LIBRARY}:{COLLECTIVES.get(kind, kind)}",
            "time_created_ns": created or 0, "time_discovered_started_ns": started,
            "time_discovered_completed_ns": ended, "duration_ms": (ended - started) / 1e6 if ended and started else None,
            "input_sizes": sizes, "input_dtypes": types, "output_sizes": sizes, "output_dtypes": types, "timeout_ms": 0,
            "retired": bool(ended), "state": "completed" if ended or times is None else "started" if started else "scheduled",
            "frames": [{"name": name, "filename": "kolo", "line": line}]}


def dumps(recordings):
    """By rank: what is pickled. An operation has one number on all ranks."""
    kept = {rank: operations(recording, "negotiated") | operations(recording, "in-order")
            for rank, recording in recordings.items()}
    first = {}
    for own in kept.values():
        for lane in {key[:2] for key in own}:
            oldest = min(key for key in own if key[:2] == lane)
            first[lane] = max(first.get(lane, oldest), oldest)
    open_ones = {rank: waiting(recording) for rank, recording in recordings.items()}
    order = sorted(key for key in set().union(*kept.values()) if key >= first[key[:2]])
    order += sorted(set().union(*open_ones.values()))
    result = {}
    for rank, recording in recordings.items():
        own = kept[rank] | open_ones[rank]
        entries = [{"record_id": number, "collective_seq_id": number, "op_id": number, "pg_id": key[0],
                    "process_group": (group_of(*key[:2]), key[1])} | own[key]
                   for number, key in enumerate(order) if key in own]
        config = {}
        for process_set in recording.sets:
            ranks = sorted(other for other, one in recordings.items() if process_set in one.sets)
            if process_set == 0:
                ranks = list(range(recording.size))
            for mode in ("negotiated", "in-order"):
                name = group_of(process_set, mode)
                config[name] = {"name": name, "desc": mode, "ranks": str(ranks)}
        result[rank] = {"version": VERSION, "pg_config": config, "pg_status": {}, "entries": entries}
    return result


def write(recordings, folder):
    """Writes kolo_trace_RANK into the folder, as fr_trace wants them; their paths."""
    os.makedirs(folder, exist_ok=True)
    paths = []
    for rank, dump in dumps(recordings).items():
        paths.append(os.path.join(folder, f"kolo_trace_{rank}"))
        with open(paths[-1], "wb") as file:
            pickle.dump(dump, file)
    return paths
